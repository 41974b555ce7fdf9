/* The compiled twin: what it is given, what it keeps, and what its parts do for each other.

   The reference is the simulator under `set`, `dl2` or a heuristic; every part here names the module that it
   follows, term by term, so that both take the same decisions. Nothing here draws random numbers, reads a clock or knows Python. */

#ifndef FEDL2_TWIN_H
#define FEDL2_TWIN_H

#include <stdbool.h>
#include <stdint.h>

#define SIDE 17 /* 0 to 16 tasks of a role */
#define CELLS (SIDE * SIDE)
/* Workers of a job without servers: its cells are the first 65, by the number of workers, of CELLS. */
#define MOST_WORKERS 64
#define APART (MOST_WORKERS + 1)
#define BINS 36
#define OWN_FEATURES 9
#define INPUTS (2 * OWN_FEATURES + 3)
#define WIDEST 4096
#define MOST_SHARES MOST_WORKERS /* nodes of a job: it has at most so many tasks */

enum { RUNNING, FINISHED, NO_PROGRESS, OUT_OF_MEMORY, LOSES };

/* Whose decisions are taken: `policy_net.twin.schedulers.Scheduler`. */
enum {
    SET,
    FIFO,
    FIFO_BACKFILL,
    FIFO_EASY,
    LAS,
    SRTF,
    DRF,
    DRF_PEAK,
    TETRIS,
    OPTIMUS,
    OPTIMUS_SR,
    MARGINAL,
    DL2,
    SCHEDULERS
};

/* One job as it is submitted: `policy_net.twin.memory.JOB`. */
typedef struct {
    double submit_seconds, total_epochs, declared_epochs /* NaN: the truth */, samples_per_epoch, speed_factor;
    double report_factor; /* samples that it reports for every one that it trains */
    uint64_t noise_key;
    int64_t type, trains_as /* its true type */, uses_ps, work_known;
    int64_t worker_cpu, worker_gpu, ps_cpu, ps_gpu, worker_class, ps_class;
    int64_t requested_workers, requested_ps, max_workers, max_ps, min_workers, min_ps;
} Job;

/* What was seen of a split: `policy_net.twin.memory.CELL`. */
typedef struct {
    double samples, seconds;
    int64_t ps, workers, count;
} Cell;

/* A session: jobs of unknown work that were submitted together: `policy_net.twin.memory.SESSION`. */
typedef struct {
    int64_t gpus;
    double first_submit_seconds, ended[BINS], withdrawn[BINS];
} Session;

/* One job type: true speeds, and what is believed of them: `policy_net.twin.memory.TypeMemory`. */
typedef struct {
    const double *truth;          /* CELLS */
    const double *relative;       /* APART × APART, [workers, nodes]: speed where workers are apart; NULL: it makes no difference */
    const double *planned;        /* as `relative`: plan on this in place of beliefs; NULL: on beliefs */
    const double *given;          /* CELLS: plan on these in place of beliefs; NULL: on beliefs */
    const double *hoped;          /* CELLS: speeds of a type of which nothing was seen */
    double *fitted;               /* CELLS: speeds of the last fit, of heuristics that fit them in Optimus's form */
    const double *features, *expected_times; /* of that form: terms of every split, and its time by the prior */
    const double *prior_products, *prior_target, *unseen_coefficients;
    double *coefficients; /* of the last fit */
    const double *prior_mean;     /* n */
    const double *prior_smooth;   /* n × n */
    const double *prior_sd_shape; /* n */
    double spread_smooth, spread_cell, deviation_unseen;
    int64_t uses_ps, prior_of_type, known; /* known: a process of this type exists */
    int64_t span_kind;                     /* of what is believed of distance */
    int64_t refit_at, cells, conditioned, terms;
    int64_t doubted; /* reports in a row that were left out, as too far from what is believed; the most after one of nothing */
    int64_t splits; /* n: those of which anything is believed, with servers all, without as many workers as a job may have */
    Cell *cell;           /* CELLS */
    Cell *conditioned_on; /* CELLS */
} Type;

/* An action that was drawn: `policy_net.twin.memory.ACTION`. */
typedef struct {
    double probability;
    int64_t index, job, draw; /* job: place among those of the state, negative: void */
} Action;

/* Decisions that are drawn in one state, to be compared with each other: `policy_net.twin.memory.GroupMemory`. */
typedef struct {
    int64_t draws, every, phase;       /* in every `every`-th decision, from number `phase` on */
    int64_t (*keep)(int64_t decision); /* take what was drawn, of which the rest says what; 0 if that went well */
    int64_t rows, most_rows, jobs;      /* rows: actions; jobs: of the state */
    Action *action;
    float *features;         /* rows × inputs, before the action */
    bool *mask;              /* rows × all actions */
    double *utility, *share; /* draws × jobs: believed utility of what a job got, and its dominant share */
} Group;

/* The network of `dl2`, and how it is used: `policy_net.twin.memory.NetworkMemory`. */
typedef struct {
    int64_t jobs_per_batch, type_columns, bundles, reserves, draws, layers;
    double exploration;     /* probability of a lopsided job's repair in place of what is drawn */
    const int64_t *widths;  /* layers + 1 */
    const int64_t *column;  /* of every job: its type's */
    const float *weight;    /* layer by layer, an input's weights side by side, and then the biases */
    int64_t *finite;        /* 0 once a logit was not finite */
    /* the next number from 0 to 1 of a decision that is taken (draw 0), or of one of a group; 0 if that went well */
    int64_t (*uniform)(int64_t decision, int64_t draw, double *number);
    Group *group; /* NULL: none are drawn */
} Network;

/* Everything a run is given, and where its results go: `policy_net.twin.memory.CaseMemory`. */
typedef struct {
    int64_t jobs, types, stated_types, classes; /* stated_types: but for those that only a liar's job is in truth */
    int64_t nodes /* that there are now */, most_nodes /* that there ever are */;
    int64_t layers, parameters;
    int64_t changes_nodes, nodes_pending; /* nodes_pending: whether nodes are still to come, return or go by plan */
    int64_t most_idle, most_waiting;      /* decisions after which a run is given up */
    int64_t on_events, pooled, packed, distance_matters, plans_places, learns, silent, with_sessions, most_sessions;
    int64_t scheduler, fits; /* fits: a heuristic plans on what was seen */
    double slot_seconds, debounce_seconds, noise_variance, resize_seconds, resume_seconds, start_seconds, checkpoint_seconds, refit_growth;
    double next_change_seconds /* when nodes next come or go */, gpu_seconds_before, changed_at_seconds; /* available until they last did */
    const Job *job;
    Type *type;
    const int64_t *node, *node_cpu, *node_gpu; /* of those there are now; node: each one's number for good */
    const double *lost_at;                     /* by number, when a node was first lost in the latest change; infinite: was not */
    const int64_t *class_cpu, *class_gpu, *class_limit; /* demand classes in placing order, and their volume bounds */
    const int64_t *widths;   /* layers + 1 */
    const double *parameter; /* policy_net.twin.memory.Parameter */
    double *ended, *passed;  /* BINS: lengths of jobs of unknown work */
    double *restart_mean_seconds, *resized; /* resized: `RESIZES` and what follows */
    int64_t *restarts_seen;
    double *start_at, *end_at, *longest_gap; /* per job; NaN where it has not happened */
    double *present_samples, *present_speed; /* per job of unknown work in the cluster at the end; speed 0: none */
    double *starting_seconds;                /* per job; negative: not starting */
    int64_t *training, *trained_size;        /* per job; the cell at which it trained last */
    int64_t *sessions, *session_of;          /* how many there are; of every job the index of its own, negative: none */
    Session *session;                        /* most_sessions */
    struct Mean *span_seen, *span_believed;  /* places/places.h: the logs of what distance does */
    int64_t *place_reports;                  /* `REPORTS` and what follows */
    int64_t (*fit)(int64_t type);            /* fit a type where `fit_type` cannot; 0 if that went well; NULL: by a Gaussian process */
    const Network *network;                  /* of `dl2` */
    int64_t (*change)(double until);         /* let nodes come and go up to a time; 0 if that went well */
} Case;

/* Where a run stands: `policy_net.twin.memory.Standing`. */
typedef struct {
    int64_t status, decisions, unusable_allocations, resizes, resumes, ended_jobs, waiting_decisions, idle_decisions, losing_decisions, present, first;
    double time_seconds, gpu_seconds, available_gpu_seconds, allocated_until_seconds, pause_seconds;
    double training_gpu_seconds, lost_training_seconds, lost_before_seconds; /* before: when a job last ended */
} Standing;

typedef struct {
    int workers, ps;
} Split;

/* A step of the planner; `slope` 0 where nothing gains. */
typedef struct {
    Split size;
    double slope, log_share;
} Step;

/* Steps of one type under given caps and minimum. */
typedef struct {
    int64_t key, version, places, fills; /* of beliefs about speeds and places, and how often it was filled */
    int class; /* of workers on as few nodes as possible, or `ANYWHERE` */
    int type, max_ps, max_workers, min_ps, min_workers;
    double speed[CELLS], utility[CELLS], best_speed, slowest_speed;
    Split best;
    double ps_price;
    Step step[CELLS];
    int64_t step_version[CELLS];
} Table;

/* A type's beliefs as of the last fit. */
typedef struct {
    double speed[CELLS], median[CELLS], sd[CELLS], utility[CELLS]; /* median: without optimism */
    double fastest;                                                /* of the usual splits */
    int64_t version, count;
    bool fitted, scale, probed; /* probed: a job was looked for that tries a split of the type, in this decision */
} Belief;

/* A job in the cluster, and what schedulers see of it. */
typedef struct {
    double done_epochs, run_seconds, pause_seconds;
    Split running;
    bool can_train;
    double trained_until;
    /* of the present decision */
    double remaining_epochs, total_epochs, samples_per_epoch, shown_epochs, urgency, first_urgency, priority, steepness;
    int max_workers;
    Table *table, *steps; /* steps: the same, or what plans that say where tasks go make of it */
    Split granted;
    double other_share; /* of its utility that another size than the running one keeps, where the plan says so */
    bool keeps;
    Step next;
    int refusals, at, apart; /* at: place among the present; apart: nodes with workers */
    bool stays;              /* keeps its nodes, where the plan says where tasks go */
    /* of heuristics */
    Split requested; /* size, as far as it fits the empty cluster */
    bool sized;
    int hull, peak; /* hull: 1 + its number; peak: workers at which it is fastest, of `peak_version` of its speeds */
    int64_t peak_version;
    int segment;       /* the next one of its hull */
    Split probe, most; /* most: beyond that it does not grow */
    bool grows, next_is_worker;
    bool moved;     /* has other nodes, and no other number of tasks */
    /* of the present interval */
    bool runs, finished;
    double speed, seconds, samples, epochs, paused;
    double stop; /* if nodes come or go: when it stops at the latest, at the next decision or with a node */
    Split lost;  /* tasks with their nodes */
    double lost_gpu_seconds;
    double checkpoint_epochs, since_checkpoint_seconds;
} State;

typedef struct {
    double score;
    int index;
} Queued;

typedef struct {
    double load;
    int node;
} Loaded;

typedef struct {
    double value;
    int at;
} Length;

/* What is known of a session in one decision. */
typedef struct {
    int64_t round;
    bool known, ranked[BINS];
    double at[BINS], log[BINS + 1], mates, low[BINS], high[BINS];
} Gathered;

/* Tasks of a job on a node. */
typedef struct {
    int node, workers, ps;
} Share;

/* Where a job's tasks are, in the nodes' order. */
typedef struct {
    int count;
    Share share[MOST_SHARES];
} Placement;

/* A step of a hull, from one split to a larger one; `slope`: gain in utility per task. */
typedef struct {
    Split start, end;
    double slope;
} Segment;

/* The best splits of a type under given caps and minimum, fastest first, and their upper concave hull. */
typedef struct {
    int64_t version;
    int type, max_ps, max_workers, min_ps, min_workers, splits, segments;
    Split split[CELLS];
    Segment segment[CELLS];
} Hull;

/* What a job may still take of a fair share: a bundle in every round up to the last. */
typedef struct {
    int workers, last, join, bundle_workers, bundle_ps;
    bool takes, starts;
} Sharing;

/* What was granted to the jobs of a decision so far, and what that leaves free. */
typedef struct {
    int64_t free_cpu, free_gpu, *taken; /* taken: tasks of every class */
    int (*refused)[4];                  /* worker and server class, workers, servers */
    int refused_count, most_refused;
    Split *granted; /* to every present job, where a heuristic plans */
} Capacity;

typedef struct Twin {
    Case *in;
    Standing *out;
    bool (*decide)(struct Twin *twin);
    State *job;
    int *present;
    int presents, arrived;
    Belief *belief;
    Table **table;
    int64_t tables, table_buckets;
    double edge[BINS], ranks[BINS], ends[BINS]; /* ends: the probability of every length */
    bool ranks_known;
    double session_ends[BINS][BINS], log_ended[BINS][BINS + 1], log_reached[BINS][BINS + 1]; /* last: nothing in common */
    double stranger_share, unrelated_share;
    Gathered *gathered;
    int64_t session_round;
    int *bin; /* of every present job */
    int64_t total_cpu, total_gpu;
    double speed_exponent, work_exponent, ps_price, contention; /* of the present decision */
    bool priced, contention_known;
    double *inputs, *scratch, *hidden;
    Length *length;
    Queued *queue;
    /* what a decision has left */
    Capacity plan, then; /* then: when the head of a queue starts */
    Hull **hull;
    int hulls, most_hulls;
    Sharing *sharing;
    double *key; /* of every present job */
    int *order;
    bool *waiting;
    Placement *placement_before; /* of every job, where its tasks were when nodes were lost, without a pool */
    int *node_before, *place_of; /* numbers of the nodes before the latest change; by number their places since, negative: none */
    bool keeps_placements; /* it counts where tasks are */
    bool changed;    /* nodes come or go in the present interval */
    int64_t *per_round;
    int64_t *used;
    Split *refusal; /* of every present job: up to CELLS */
    Loaded *loads;
    int64_t *left_cpu, *left_gpu, *fitting;
    int *placed, *stamp, stamps;
    struct Piece *piece;
    struct Pool *pool; /* where `set` plans say where tasks go */
    bool lacks_memory;
} Twin;

_Static_assert(MOST_WORKERS < CELLS, "a job without servers has its cells in the same memory");

/* Of a split with at most 16 tasks of a role, or without servers. */
static inline int cell_of(int ps, int workers) { return ps * SIDE + workers; }

/* What a split costs, in workers. */
static inline double table_cost(const Table *table, int ps, int workers) { return workers + table->ps_price * ps; }

/* parameters, by name: `policy_net.twin.memory.Parameter` */
enum {
    BOUND,
    LOUDNESS_ON_ONE_MACHINE,
    SPEED_EXPONENT, /* of these three the log of a factor, and behind it what contention adds */
    WORK_EXPONENT = SPEED_EXPONENT + 2,
    PS_PRICE = WORK_EXPONENT + 2,
    SCATTER = PS_PRICE + 2,
    STRANGERS,
    UNRELATED,
    RESIDUAL
};

bool is_dead(const Cell *cell);
bool belief_refresh(Twin *twin, int type);
void belief_count(Twin *twin, int type);
void belief_observe(Twin *twin, int type, Split running, double samples, double seconds);
Table *table_of(Twin *twin, int class, int type, int max_ps, int max_workers, int min_ps, int min_workers);
Step table_step(Table *table, Split granted);
Step kept_step(const State *job, Split granted);
double kept_utility(const State *job, int cell);
double table_speed(const Table *table, Split split);

void lifetimes_open(Twin *twin);
void lifetimes_see(Twin *twin, const double *trained, const double *speed);
void lifetimes_end(Twin *twin, int job, double samples);
double lifetimes_rank(Twin *twin, int job, double seconds);

void sessions_open(Twin *twin);
void sessions_leave(Twin *twin, int job, int bin);
void sessions_end(Twin *twin, int job, int bin);
void sessions_see(Twin *twin, const int *bin);
bool sessions_ranks(Twin *twin, int job, int bin, double *ranks);

/* what was seen of resizes: how many, how long jobs stood still for them, and for how long they were observed */
enum { RESIZES, RESIZE_SECONDS, OBSERVED_SECONDS };

double restart_seconds(const Twin *twin);
double resize_seconds(const Twin *twin);
double resize_interval(const Twin *twin);
void restarts_observe(Twin *twin);

double desired_share(const Twin *twin, int index);
void residual_tilts(Twin *twin);
void prices_open(Twin *twin);
bool prices_set(Twin *twin);
bool decide(Twin *twin);
bool plan(Twin *twin, double restart);
void queue_order(Queued *queue, int count);
void queue_sink(Queued *queue, int count, int parent);
void job_view(const Job *spec, State *job);
double remaining_samples(const Twin *twin, const State *job, int index);

bool capacity_create(Capacity *capacity, const Case *in);
void capacity_free(Capacity *capacity);
void capacity_open(Twin *twin, Capacity *capacity);
bool capacity_extend(Twin *twin, Capacity *capacity, int job, Split granted, Split size);
bool capacity_take(Twin *twin, Capacity *capacity, int job, int workers, int ps);
bool capacity_fits(Twin *twin, Capacity *capacity, int job, int workers, int ps);
int64_t capacity_rounds(Twin *twin, Capacity *capacity, const int64_t *per_round, int64_t most);
bool fits_empty(Twin *twin, int job, Split size);
void capacity_begin(Twin *twin, Capacity *capacity);
bool capacity_change(Twin *twin, Capacity *capacity, int at, Split size);
void capacity_settle(Twin *twin, Capacity *capacity, int at, const Split *candidates, int count);
void capacity_grow(Twin *twin, Capacity *capacity, int at, const Split *candidates, int count);
void capacity_grant(Twin *twin, const Capacity *capacity);
int64_t spread_class(Twin *twin, int64_t class, int64_t count, int *placed);
void nodes_clear(Twin *twin);
bool place(Twin *twin, Placement *placements);

void nodes_open(Twin *twin);
bool nodes_advance(Twin *twin, double until);
bool nodes_change(Twin *twin, double until);
void nodes_lose(Twin *twin);

void engine_begin(Twin *twin);
void engine_step(Twin *twin);

#endif
