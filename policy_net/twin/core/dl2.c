/* Decisions of a `dl2` network: batches of J jobs in arrival order, masks, one forward pass an action; and groups of
   decisions that are drawn in one state, to be compared with each other.

   Follows policy_net.dl2.policy, batch, network and group. Logits have 32 bits, as there, and are added up in another order: an
   action is the same unless the two best admissible logits are as near as that. */

#include "heuristics/heuristics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KINDS 3
#define SCALARS 5 /* of a job: slots run, remaining epochs, dominant share, workers, servers */
#define MOST_SHOWN 16
#define LOPSIDED 10
#define NOTHING (-1)
#define FIRST_ROWS 256

enum { WORKER, SERVER, BUNDLE };

/* Up to J jobs while the network gives to them. */
typedef struct {
    Twin *twin;
    const Network *net;
    int first, count;
    int64_t least_cpu, least_gpu; /* to be left free by its jobs */
    bool *mask, *afterwards; /* of every action; afterwards: once a job can train */
    bool holds_back, something_runs;
    float *share, *features, *pre, *hidden, *logits; /* share: of every job; pre: of the first layer; hidden: of two layers */
    double *chance, probability;                     /* probability: of the action that was drawn last */
    int64_t draw;                                    /* of a group, from 1 on; 0: the decision that is taken */
    struct Fits {
        int64_t worker, server;
        Split tasks;
        bool yes;
    } *fits; /* answers about the present free capacity */
    int answers;
} Batch;

static const Job *spec_of(const Batch *batch, int column) {
    return &batch->twin->in->job[batch->twin->present[batch->first + column]];
}

static Split *granted_of(const Batch *batch, int column) { return &batch->twin->plan.granted[batch->first + column]; }

static int void_of(const Batch *batch) { return KINDS * (int)batch->net->jobs_per_batch; }

/* What an action gives: one task of a role, or what the job lacks to its minimum. */
static Split grant_of(const Batch *batch, int column, int kind) {
    const Job *spec = spec_of(batch, column);
    Split granted = *granted_of(batch, column);
    int workers = (int)spec->min_workers - granted.workers, ps = (int)spec->min_ps - granted.ps;
    return (Split){kind == SERVER ? 0 : workers > 1 ? workers : 1, kind == WORKER ? 0 : ps > 1 ? ps : 1};
}

static bool fits(Batch *batch, int column, Split tasks) {
    const Job *spec = spec_of(batch, column);
    const Capacity *free = &batch->twin->plan;
    if (free->free_cpu - tasks.workers * spec->worker_cpu - tasks.ps * spec->ps_cpu < batch->least_cpu ||
        free->free_gpu - tasks.workers * spec->worker_gpu - tasks.ps * spec->ps_gpu < batch->least_gpu)
        return false;
    int64_t worker = tasks.workers ? spec->worker_class : NOTHING, server = tasks.ps ? spec->ps_class : NOTHING;
    for (int i = 0; i < batch->answers; i++) {
        const struct Fits *one = &batch->fits[i];
        if (one->worker == worker && one->server == server && one->tasks.workers == tasks.workers && one->tasks.ps == tasks.ps)
            return one->yes;
    }
    bool yes = capacity_fits(batch->twin, &batch->twin->plan, batch->twin->present[batch->first + column], tasks.workers, tasks.ps);
    batch->fits[batch->answers++] = (struct Fits){worker, server, tasks, yes};
    return yes;
}

static double part_of(int64_t used, int64_t total) { return used ? (total ? (double)used / (double)total : INFINITY) : 0.0; }

static double dominant_share(const Twin *twin, const Job *spec, Split size) {
    double cpu = part_of(size.workers * spec->worker_cpu + size.ps * spec->ps_cpu, twin->total_cpu);
    double gpu = part_of(size.workers * spec->worker_gpu + size.ps * spec->ps_gpu, twin->total_gpu);
    return fmax(cpu, gpu);
}

/* Admit what a job's caps allow. */
static void open_column(Batch *batch, int column) {
    const Job *spec = spec_of(batch, column);
    Split granted = *granted_of(batch, column), both = grant_of(batch, column, BUNDLE);
    bool *mask = batch->mask + KINDS * column, worker_fits = granted.workers + both.workers <= spec->max_workers;
    if (worker_fits)
        mask[WORKER] = true;
    if (!spec->uses_ps || granted.ps + both.ps > spec->max_ps)
        return;
    mask[SERVER] = true;
    if (worker_fits && batch->net->bundles)
        mask[BUNDLE] = true;
}

/* Once at its minimum a job takes one task at a time; what did not fit before fits even less on top. */
static void open_anew(Batch *batch, int column) {
    bool *mask = batch->mask + KINDS * column, before[KINDS];
    memcpy(before, mask, sizeof before);
    memset(mask, 0, sizeof before);
    open_column(batch, column);
    for (int kind = 0; kind < KINDS; kind++)
        mask[kind] = mask[kind] && before[kind];
}

static void close_what_caps_forbid(Batch *batch, int column) {
    const Job *spec = spec_of(batch, column);
    Split granted = *granted_of(batch, column);
    bool *mask = batch->mask + KINDS * column;
    if (granted.workers >= spec->max_workers)
        mask[WORKER] = mask[BUNDLE] = false;
    if (granted.ps >= spec->max_ps)
        mask[SERVER] = mask[BUNDLE] = false;
}

static void close_what_does_not_fit(Batch *batch) {
    batch->answers = 0;
    for (int index = 0; index < KINDS * batch->count; index++)
        if (batch->mask[index])
            batch->mask[index] = fits(batch, index / KINDS, grant_of(batch, index / KINDS, index % KINDS));
}

/* Single grants of what a job lacks to train, all of which fits: of the jobs that have one half, if any has. */
static void mark_halves(Batch *batch, bool *starting) {
    bool begun = false;
    for (int column = 0; column < batch->count; column++)
        begun = begun || granted_of(batch, column)->workers || granted_of(batch, column)->ps;
    for (int column = 0; column < batch->count; column++) {
        const Job *spec = spec_of(batch, column);
        Split granted = *granted_of(batch, column);
        if (begun && !granted.workers && !granted.ps)
            continue;
        int workers = (spec->min_workers > 1 ? (int)spec->min_workers : 1) - granted.workers, ps = (int)spec->min_ps - granted.ps;
        if (!fits(batch, column, (Split){workers > 0 ? workers : 0, ps > 0 ? ps : 0}))
            continue;
        starting[KINDS * column + WORKER] = workers > 0;
        starting[KINDS * column + SERVER] = ps > 0;
    }
}

/* Leave only what makes a job train, if anything does, as long as none can. */
static void hold_back(Batch *batch) {
    bool *starting = batch->afterwards, any = false;
    int actions = void_of(batch) + 1;
    memset(starting, 0, sizeof(bool) * (size_t)actions);
    if (batch->net->bundles)
        for (int column = 0; column < batch->count; column++)
            starting[KINDS * column + (spec_of(batch, column)->uses_ps ? BUNDLE : WORKER)] = true;
    else
        mark_halves(batch, starting);
    for (int index = 0; index < actions; index++)
        any = any || (starting[index] && batch->mask[index]);
    batch->holds_back = any;
    for (int index = 0; any && index < actions; index++) {
        bool admissible = batch->mask[index];
        batch->mask[index] = starting[index] && admissible;
        batch->afterwards[index] = admissible;
    }
}

static bool only_void(const Batch *batch) {
    for (int index = 0; index < void_of(batch); index++)
        if (batch->mask[index])
            return false;
    return true;
}

static const float *row_of(const Batch *batch, int64_t feature) { return batch->net->weight + feature * batch->net->widths[1]; }

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE_VECTORS
#endif

/* Add multiples of rows to a sum, from the first row on: every sum's order, and so its bits, are those of one row at a time. */
WIDE_VECTORS static void add_rows(float *restrict sum, int64_t width, const float *const *row, const float *by, int64_t rows) {
    int64_t at = 0;
    for (; at + 4 <= rows; at += 4) {
        const float *restrict r0 = row[at], *restrict r1 = row[at + 1], *restrict r2 = row[at + 2], *restrict r3 = row[at + 3];
        float b0 = by[at], b1 = by[at + 1], b2 = by[at + 2], b3 = by[at + 3];
        for (int64_t i = 0; i < width; i++)
            sum[i] = (((sum[i] + b0 * r0[i]) + b1 * r1[i]) + b2 * r2[i]) + b3 * r3[i];
    }
    for (; at < rows; at++) {
        const float *restrict one = row[at];
        float b = by[at];
        for (int64_t i = 0; i < width; i++)
            sum[i] += b * one[i];
    }
}

/* Let an input of the first layer grow. */
static void add_input(Batch *batch, int64_t feature, float delta) {
    const float *row = row_of(batch, feature);
    batch->features[feature] += delta;
    add_rows(batch->pre, batch->net->widths[1], &row, &delta, 1);
}

static int64_t row_width(const Batch *batch) { return batch->net->type_columns + SCALARS; }

/* The first layer before anything is granted. */
static void start_network(Batch *batch) {
    const Network *net = batch->net;
    Twin *twin = batch->twin;
    memset(batch->features, 0, sizeof(float) * (size_t)net->widths[0]);
    memcpy(batch->pre, row_of(batch, net->widths[0]), sizeof(float) * (size_t)net->widths[1]); /* biases follow the weights */
    for (int column = 0; column < batch->count; column++) {
        int index = twin->present[batch->first + column];
        const State *job = &twin->job[index];
        int64_t first = column * row_width(batch);
        batch->share[column] = 0.0f;
        add_input(batch, first + net->column[index], 1.0f);
        add_input(batch, first + net->type_columns, (float)(1.0 / log1p(100.0) * log1p(job->run_seconds / twin->in->slot_seconds)));
        add_input(batch, first + net->type_columns + 1, (float)(1.0 / log1p(30000.0) * log1p(job->remaining_epochs)));
    }
}

static int shown(int tasks) { return tasks < MOST_SHOWN ? tasks : MOST_SHOWN; }

/* Show the network what a job was given on top of what it was granted. */
static void change_network(Batch *batch, int column, Split given) {
    const Job *spec = spec_of(batch, column);
    Split granted = *granted_of(batch, column);
    float share = (float)dominant_share(batch->twin, spec, granted) - batch->share[column];
    int64_t first = column * row_width(batch) + batch->net->type_columns + 2;
    batch->share[column] += share;
    add_input(batch, first, share);
    if (given.workers)
        add_input(batch, first + 1, (float)(shown(granted.workers) - shown(granted.workers - given.workers)) / MOST_SHOWN);
    if (given.ps)
        add_input(batch, first + 2, (float)given.ps / MOST_SHOWN);
}

/* Unmasked logits; false if one is not finite. */
static bool find_logits(Batch *batch) {
    const Network *net = batch->net;
    const float *weight = row_of(batch, net->widths[0]) + net->widths[1], *entering = batch->pre;
    const float *row[WIDEST];
    float *leaving = batch->hidden, by[WIDEST];
    for (int64_t layer = 1; layer < net->layers; layer++) {
        int64_t width = net->widths[layer], next = net->widths[layer + 1];
        float *to = layer + 1 == net->layers ? batch->logits : leaving;
        memcpy(to, weight + width * next, sizeof(float) * (size_t)next);
        int64_t rows = 0;
        for (int64_t in = 0; in < width; in++) {
            if (entering[in] <= 0.0f) /* what is not a number goes on, to be seen in the logits */
                continue;
            row[rows] = weight + in * next;
            by[rows++] = entering[in];
        }
        add_rows(to, next, row, by, rows);
        weight += (width + 1) * next;
        entering = to;
        leaving = leaving == batch->hidden ? batch->hidden + WIDEST : batch->hidden;
    }
    bool finite = true;
    for (int index = 0; index <= void_of(batch); index++)
        finite = finite && isfinite(batch->logits[index]);
    return finite;
}

/* The first admissible action with the largest logit. */
static int best_action(const Batch *batch) {
    int best = NOTHING;
    for (int index = 0; index <= void_of(batch); index++)
        if (batch->mask[index] && (best == NOTHING || batch->logits[index] > batch->logits[best]))
            best = index;
    return best;
}

/* The action that repairs the first lopsided job, if it is admissible. */
static int proposal(const Batch *batch) {
    for (int column = 0; column < batch->count; column++) {
        Split granted = *granted_of(batch, column);
        if (granted.workers <= 1 && granted.ps <= 1)
            continue;
        bool servers = granted.workers > LOPSIDED * granted.ps, workers = granted.ps > LOPSIDED * granted.workers;
        int index = KINDS * column + (servers ? SERVER : WORKER);
        if ((servers || workers) && batch->mask[index])
            return index;
    }
    return NOTHING;
}

/* An action drawn by a number from 0 to 1. */
static int drawn_action(Batch *batch, double uniform) {
    double largest = batch->logits[best_action(batch)], sum = 0.0, explored = batch->net->exploration;
    int repairs = explored > 0.0 ? proposal(batch) : NOTHING, last = NOTHING;
    for (int index = 0; index <= void_of(batch); index++) {
        batch->chance[index] = batch->mask[index] ? exp((double)batch->logits[index] - largest) : 0.0;
        sum += batch->chance[index];
    }
    double keeps = repairs == NOTHING ? 1.0 : 1.0 - explored, total = 0.0, reached = 0.0;
    for (int index = 0; index <= void_of(batch); index++) {
        batch->chance[index] = batch->chance[index] / sum * keeps + (index == repairs ? explored : 0.0);
        total += batch->chance[index];
    }
    for (int index = 0; index <= void_of(batch) && !(reached > uniform * total); index++) {
        reached += batch->chance[index];
        if (batch->mask[index])
            last = index;
    }
    batch->probability = batch->chance[last] / total;
    return last;
}

/* Give what an admissible action (not void) gives. */
static void grant(Batch *batch, int index) {
    int column = index / KINDS, kind = index % KINDS;
    const Job *spec = spec_of(batch, column);
    Split given = grant_of(batch, column, kind), *granted = granted_of(batch, column);
    capacity_take(batch->twin, &batch->twin->plan, batch->twin->present[batch->first + column], given.workers, given.ps);
    granted->workers += given.workers;
    granted->ps += given.ps;
    if (batch->holds_back)
        memcpy(batch->mask, batch->afterwards, sizeof(bool) * (size_t)(void_of(batch) + 1));
    batch->holds_back = false;
    if (given.workers <= 1 && given.ps <= 1)
        close_what_caps_forbid(batch, column);
    else
        open_anew(batch, column);
    close_what_does_not_fit(batch);
    batch->something_runs = batch->something_runs || (granted->workers >= spec->min_workers && granted->ps >= spec->min_ps && granted->workers > 0);
    if (!batch->net->bundles && !batch->something_runs)
        hold_back(batch);
    change_network(batch, column, given);
}

/* Memory for more actions; false without. */
static bool extend(Group *group, size_t inputs, size_t actions) {
    size_t most = group->most_rows ? 2 * (size_t)group->most_rows : FIRST_ROWS;
    Action *action = realloc(group->action, most * sizeof(Action));
    group->action = action ? action : group->action;
    float *features = realloc(group->features, most * inputs * sizeof(float));
    group->features = features ? features : group->features;
    bool *mask = realloc(group->mask, most * actions * sizeof(bool));
    group->mask = mask ? mask : group->mask;
    if (action && features && mask)
        group->most_rows = (int64_t)most;
    return action && features && mask;
}

/* Note an action before it is taken; false without memory. */
static bool record(Batch *batch, int index) {
    Group *group = batch->net->group;
    size_t inputs = (size_t)batch->net->widths[0], actions = (size_t)void_of(batch) + 1;
    if (group->rows == group->most_rows && !extend(group, inputs, actions))
        return false;
    size_t row = (size_t)group->rows++;
    int64_t job = index == void_of(batch) ? NOTHING : batch->first + index / KINDS;
    group->action[row] = (Action){batch->probability, index, job, batch->draw - 1};
    memcpy(group->features + row * inputs, batch->features, inputs * sizeof(float));
    memcpy(group->mask + row * actions, batch->mask, actions * sizeof(bool));
    return true;
}

/* What later jobs make of the cluster is left to them, as far as they can use it, but for what a job of the batch needs to train. */
static void reserve(Batch *batch) {
    Twin *twin = batch->twin;
    int later = twin->presents - batch->first - batch->count;
    double share = (double)later / twin->presents;
    int64_t most_cpu = 0, most_gpu = 0;
    batch->least_cpu = batch->least_gpu = 0;
    if (!batch->net->reserves)
        return;
    for (int column = batch->count; column < batch->count + later; column++) {
        const Job *spec = spec_of(batch, column);
        most_cpu += spec->max_workers * spec->worker_cpu + spec->max_ps * spec->ps_cpu;
        most_gpu += spec->max_workers * spec->worker_gpu + spec->max_ps * spec->ps_gpu;
    }
    batch->least_cpu = (int64_t)((double)twin->total_cpu * share);
    batch->least_gpu = (int64_t)((double)twin->total_gpu * share);
    batch->least_cpu = most_cpu < batch->least_cpu ? most_cpu : batch->least_cpu;
    batch->least_gpu = most_gpu < batch->least_gpu ? most_gpu : batch->least_gpu;
    for (int column = 0; column < batch->count; column++) {
        const Job *spec = spec_of(batch, column);
        int64_t workers = spec->min_workers > 1 ? spec->min_workers : 1;
        int64_t cpu = twin->plan.free_cpu - workers * spec->worker_cpu - spec->min_ps * spec->ps_cpu;
        int64_t gpu = twin->plan.free_gpu - workers * spec->worker_gpu - spec->min_ps * spec->ps_gpu;
        batch->least_cpu = cpu < batch->least_cpu ? cpu : batch->least_cpu;
        batch->least_gpu = gpu < batch->least_gpu ? gpu : batch->least_gpu;
    }
}

/* Give to one batch until void is chosen or nothing more can be given; false if that failed. */
static bool fill(Batch *batch) {
    bool draws = batch->draw || batch->net->draws;
    reserve(batch);
    memset(batch->mask, 0, sizeof(bool) * (size_t)void_of(batch));
    batch->mask[void_of(batch)] = true;
    for (int column = 0; column < batch->count; column++)
        open_column(batch, column);
    close_what_does_not_fit(batch);
    batch->holds_back = false;
    if (!batch->something_runs)
        hold_back(batch);
    if (only_void(batch))
        return true;
    start_network(batch);
    do {
        double uniform = 0.0;
        if (!find_logits(batch)) {
            *batch->net->finite = 0;
            return false;
        }
        if (draws && batch->net->uniform(batch->twin->out->decisions, batch->draw, &uniform))
            return false;
        int index = draws ? drawn_action(batch, uniform) : best_action(batch);
        if (batch->draw && !record(batch, index))
            return false;
        if (index == void_of(batch))
            return true;
        grant(batch, index);
    } while (!only_void(batch));
    return true;
}

/* Give to all present jobs, from nothing; false if that failed. */
static bool allocate(Batch *batch) {
    Twin *twin = batch->twin;
    capacity_begin(twin, &twin->plan);
    batch->something_runs = false;
    for (batch->first = 0; batch->first < twin->presents; batch->first += (int)batch->net->jobs_per_batch) {
        int left = twin->presents - batch->first;
        batch->count = left < batch->net->jobs_per_batch ? left : (int)batch->net->jobs_per_batch;
        if (!fill(batch))
            return false;
    }
    return true;
}

/* The greatest believed speed that a job can have alone. */
static double best_speed(const Twin *twin, const Job *spec) {
    double best = 0.0;
    for (int64_t ps = 0; ps <= (spec->uses_ps ? spec->max_ps : 0); ps++)
        for (int64_t workers = 0; workers <= spec->max_workers; workers++)
            best = fmax(best, twin->belief[spec->type].speed[cell_of((int)ps, (int)workers)]);
    return best;
}

static double utility_of(const Twin *twin, int job, double speed) {
    return speed > 0.0 ? pow(speed / remaining_samples(twin, &twin->job[job], job), FAIRNESS_EXPONENT) : 0.0;
}

/* What the decision that was drawn last brings every job, and what the job has of the cluster. */
static void score(const Batch *batch, double *utility, double *share) {
    const Twin *twin = batch->twin;
    double all = 0.0;
    for (int at = 0; at < twin->presents; at++) {
        const Job *spec = &twin->in->job[twin->present[at]];
        Split granted = twin->plan.granted[at];
        bool trains = granted.workers >= spec->min_workers && granted.ps >= spec->min_ps;
        double speed = trains ? twin->belief[spec->type].speed[cell_of(granted.ps, granted.workers)] : 0.0;
        utility[at] = utility_of(twin, twin->present[at], speed);
        share[at] = dominant_share(twin, spec, granted);
        all += utility_of(twin, twin->present[at], best_speed(twin, spec));
    }
    for (int at = 0; at < twin->presents; at++)
        utility[at] = all > 0.0 ? utility[at] / all : 0.0;
}

/* Draw decisions in the present state, and hand them over; false if that failed. */
static bool draw_group(Batch *batch) {
    Group *group = batch->net->group;
    size_t jobs = (size_t)batch->twin->presents;
    group->rows = group->most_rows = 0;
    group->jobs = (int64_t)jobs;
    group->utility = malloc(sizeof(double) * (size_t)group->draws * jobs);
    group->share = malloc(sizeof(double) * (size_t)group->draws * jobs);
    bool went_well = group->utility && group->share;
    for (batch->draw = 1; went_well && batch->draw <= group->draws; batch->draw++) {
        size_t first = (size_t)(batch->draw - 1) * jobs;
        went_well = allocate(batch);
        if (went_well)
            score(batch, group->utility + first, group->share + first);
    }
    batch->draw = 0;
    went_well = went_well && !batch->twin->lacks_memory && !group->keep(batch->twin->out->decisions);
    void *owned[] = {group->action, group->features, group->mask, group->utility, group->share};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    group->action = NULL;
    group->features = NULL;
    group->mask = NULL;
    return went_well;
}

bool dl2(Twin *twin) {
    const Network *net = twin->in->network;
    size_t actions = KINDS * (size_t)net->jobs_per_batch + 1;
    if (!heuristic_open(twin))
        return false;
    Batch batch = {.twin = twin, .net = net};
    batch.mask = malloc(actions * sizeof(bool));
    batch.afterwards = malloc(actions * sizeof(bool));
    batch.share = malloc(actions * sizeof(float));
    batch.features = malloc((size_t)net->widths[0] * sizeof(float));
    batch.pre = malloc((size_t)net->widths[1] * sizeof(float));
    batch.hidden = malloc(2 * WIDEST * sizeof(float));
    batch.logits = malloc(actions * sizeof(float));
    batch.chance = malloc(actions * sizeof(double));
    batch.fits = malloc(2 * actions * sizeof *batch.fits);
    bool went_well = batch.mask && batch.afterwards && batch.share && batch.features && batch.pre && batch.hidden && batch.logits &&
                     batch.chance && batch.fits;
    if (went_well && net->group && twin->out->decisions % net->group->every == net->group->phase)
        went_well = draw_group(&batch);
    went_well = went_well && allocate(&batch);
    void *owned[] = {batch.mask, batch.afterwards, batch.share, batch.features, batch.pre, batch.hidden, batch.logits, batch.chance, batch.fits};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    if (went_well)
        capacity_grant(twin, &twin->plan);
    return went_well && !twin->lacks_memory;
}
