/* Free capacity for a plan's tasks: the cluster's sums, and on nodes whether `spread` would place every task.

   Follows policy_net.baselines.decision_capacity, placement.capacity and placement.spread. A yes is exact at every moment; a no is
   final for the decision. */

#include "twin.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_REFUSALS 64

/* Memory of a decision's capacity; false without. */
bool capacity_create(Capacity *capacity, const Case *in) {
    capacity->most_refused = FIRST_REFUSALS;
    capacity->taken = malloc((size_t)in->classes * sizeof(int64_t));
    capacity->refused = malloc((size_t)capacity->most_refused * sizeof *capacity->refused);
    capacity->granted = malloc((size_t)in->jobs * sizeof(Split));
    return capacity->taken && capacity->refused && capacity->granted;
}

void capacity_free(Capacity *capacity) {
    free(capacity->taken);
    free(capacity->refused);
    free(capacity->granted);
}

/* Everything free again, for what `capacity_extend` and `capacity_take` take. */
void capacity_open(Twin *twin, Capacity *capacity) {
    capacity->free_cpu = twin->total_cpu;
    capacity->free_gpu = twin->total_gpu;
    capacity->refused_count = 0;
    memset(capacity->taken, 0, sizeof(int64_t) * (size_t)twin->in->classes);
}

static int64_t amount(const Case *in, int64_t of, int64_t measured_for) {
    return in->class_gpu[measured_for] ? in->class_gpu[of] : in->class_cpu[of];
}

/* Whether sums alone prove that so many tasks of every class have a place. */
static bool proven(const Case *in, const int64_t *count) {
    for (int64_t here = 0; here < in->classes; here++) {
        if (!count[here])
            continue;
        int64_t sum = -amount(in, here, here);
        for (int64_t other = 0; other <= here; other++)
            sum += count[other] * amount(in, other, here);
        if (sum > in->class_limit[here] - 1)
            return false;
    }
    return true;
}

static bool sooner(const Loaded *a, const Loaded *b) {
    return a->load < b->load || (a->load == b->load && a->node < b->node);
}

/* Let a load that has grown find its place in a heap, the least on top. */
static void loads_sink(Loaded *heap, int count, int parent) {
    Loaded item = heap[parent];
    for (int child = 2 * parent + 1; child < count; child = 2 * parent + 1) {
        if (child + 1 < count && sooner(&heap[child + 1], &heap[child]))
            child++;
        if (!sooner(&heap[child], &item))
            break;
        heap[parent] = heap[child];
        parent = child;
    }
    heap[parent] = item;
}

static int64_t fitting_on(const Twin *twin, int64_t class, int64_t node, int64_t most) {
    int64_t cpu = twin->in->class_cpu[class], gpu = twin->in->class_gpu[class];
    if (cpu && twin->left_cpu[node] / cpu < most)
        most = twin->left_cpu[node] / cpu;
    if (gpu && twin->left_gpu[node] / gpu < most)
        most = twin->left_gpu[node] / gpu;
    return most;
}

static double load_of(const Twin *twin, int64_t class, int64_t node) {
    const Case *in = twin->in;
    int64_t whole = in->class_gpu[class] ? in->node_gpu[node] : in->node_cpu[node];
    int64_t left = in->class_gpu[class] ? twin->left_gpu[node] : twin->left_cpu[node];
    return (double)(whole - left) / (double)(whole > 1 ? whole : 1);
}

/* Place so many tasks of a class, each on the least loaded node; says how many found one; `placed`: where, may be NULL. */
int64_t spread_class(Twin *twin, int64_t class, int64_t count, int *placed) {
    const Case *in = twin->in;
    Loaded *heap = twin->loads;
    int nodes = 0;
    for (int64_t node = 0; node < in->nodes; node++)
        if (fitting_on(twin, class, node, count) > 0)
            heap[nodes++] = (Loaded){load_of(twin, class, node), (int)node};
    for (int parent = nodes / 2 - 1; parent >= 0; parent--)
        loads_sink(heap, nodes, parent);
    int64_t done = 0;
    while (nodes && done < count) {
        int node = heap[0].node;
        if (placed)
            placed[done] = node;
        done++;
        twin->left_cpu[node] -= in->class_cpu[class];
        twin->left_gpu[node] -= in->class_gpu[class];
        if (fitting_on(twin, class, node, 1) > 0)
            heap[0].load = load_of(twin, class, node);
        else
            heap[0] = heap[--nodes];
        if (nodes)
            loads_sink(heap, nodes, 0);
    }
    return done;
}

void nodes_clear(Twin *twin) {
    memcpy(twin->left_cpu, twin->in->node_cpu, sizeof(int64_t) * (size_t)twin->in->nodes);
    memcpy(twin->left_gpu, twin->in->node_gpu, sizeof(int64_t) * (size_t)twin->in->nodes);
}

static bool all_placed(Twin *twin, const int64_t *count) {
    nodes_clear(twin);
    for (int64_t class = 0; class < twin->in->classes; class++)
        if (count[class] && spread_class(twin, class, count[class], NULL) < count[class])
            return false;
    return true;
}

/* What fitted on no node once fits on none later in the same decision; false without memory. */
static bool refuse(Twin *twin, Capacity *capacity, int64_t worker, int64_t server, int workers, int ps) {
    if (capacity->refused_count == capacity->most_refused) {
        void *more = realloc(capacity->refused, sizeof *capacity->refused * (size_t)(2 * capacity->most_refused));
        if (!more) {
            twin->lacks_memory = true;
            return false;
        }
        capacity->refused = more;
        capacity->most_refused *= 2;
    }
    int *no = capacity->refused[capacity->refused_count++];
    no[0] = (int)worker, no[1] = (int)server, no[2] = workers, no[3] = ps;
    return true;
}

/* Take capacity on nodes; `within`: what was refused once is refused for at least as many tasks of the same kind too. */
static bool nodes_take(Twin *twin, Capacity *capacity, const Job *spec, int workers, int ps, bool within) {
    Case *in = twin->in;
    int64_t worker = spec->worker_class, server = spec->ps_class;
    for (int i = 0; i < capacity->refused_count; i++) {
        const int *no = capacity->refused[i];
        bool alike = (no[0] == worker || !workers) && (no[1] == server || !ps);
        if (alike && ((workers == no[2] && ps == no[3]) || (within && no[0] == worker && no[1] == server && workers >= no[2] && ps >= no[3])))
            return false;
    }
    memcpy(twin->used, capacity->taken, sizeof(int64_t) * (size_t)in->classes);
    twin->used[worker] += workers;
    twin->used[server] += ps;
    if (!proven(in, twin->used) && !all_placed(twin, twin->used)) {
        refuse(twin, capacity, worker, server, workers, ps);
        return false;
    }
    memcpy(capacity->taken, twin->used, sizeof(int64_t) * (size_t)in->classes);
    return true;
}

static bool take(Twin *twin, Capacity *capacity, const Job *spec, int workers, int ps, bool within) {
    int64_t cpu = capacity->free_cpu - workers * spec->worker_cpu - ps * spec->ps_cpu;
    int64_t gpu = capacity->free_gpu - workers * spec->worker_gpu - ps * spec->ps_gpu;
    if (cpu < 0 || gpu < 0 || (!twin->in->pooled && !nodes_take(twin, capacity, spec, workers, ps, within)))
        return false;
    capacity->free_cpu = cpu;
    capacity->free_gpu = gpu;
    return true;
}

/* Give a job `size` in place of `granted`, of which it contains all, if that fits: as `DecisionCapacity.change`. */
bool capacity_extend(Twin *twin, Capacity *capacity, int job, Split granted, Split size) {
    return take(twin, capacity, &twin->in->job[job], size.workers - granted.workers, size.ps - granted.ps, true);
}

/* Take so many tasks of a job together, if they fit: as `Capacity.fits` and `take`. */
bool capacity_take(Twin *twin, Capacity *capacity, int job, int workers, int ps) {
    return take(twin, capacity, &twin->in->job[job], workers, ps, false);
}

/* Whether so many tasks of a job fit together: as `Capacity.fits`; a no is final for the decision. */
bool capacity_fits(Twin *twin, Capacity *capacity, int job, int workers, int ps) {
    const Job *spec = &twin->in->job[job];
    int64_t cpu = capacity->free_cpu, gpu = capacity->free_gpu;
    if (!capacity_take(twin, capacity, job, workers, ps))
        return false;
    capacity->free_cpu = cpu;
    capacity->free_gpu = gpu;
    capacity->taken[spec->worker_class] -= twin->in->pooled ? 0 : workers;
    capacity->taken[spec->ps_class] -= twin->in->pooled ? 0 : ps;
    return true;
}

/* Take so many tasks of every class as often as they fit for certain, at most `most` times: as `take_rounds`. */
int64_t capacity_rounds(Twin *twin, Capacity *capacity, const int64_t *per_round, int64_t most) {
    const Case *in = twin->in;
    int64_t cpu = 0, gpu = 0;
    for (int64_t class = 0; class < in->classes; class++) {
        cpu += per_round[class] * in->class_cpu[class];
        gpu += per_round[class] * in->class_gpu[class];
    }
    if (cpu && capacity->free_cpu / cpu < most)
        most = capacity->free_cpu / cpu;
    if (gpu && capacity->free_gpu / gpu < most)
        most = capacity->free_gpu / gpu;
    for (int64_t here = 0; here < in->classes && !in->pooled; here++) {
        if (!capacity->taken[here] && !per_round[here])
            continue;
        int64_t left = in->class_limit[here] - 1 + amount(in, here, here), taken = 0;
        for (int64_t other = 0; other <= here; other++) {
            left -= capacity->taken[other] * amount(in, other, here);
            taken += per_round[other] * amount(in, other, here);
        }
        if (left < 0)
            return 0;
        if (taken && left / taken < most)
            most = left / taken;
    }
    for (int64_t class = 0; class < in->classes; class++)
        capacity->taken[class] += most * per_round[class];
    capacity->free_cpu -= most * cpu;
    capacity->free_gpu -= most * gpu;
    return most;
}

/* Whether a job of such a size fits the empty cluster. */
bool fits_empty(Twin *twin, int job, Split size) {
    capacity_open(twin, &twin->then);
    return capacity_take(twin, &twin->then, job, size.workers, size.ps);
}

/* Everything free again, and nothing granted to present jobs, for `capacity_change`. */
void capacity_begin(Twin *twin, Capacity *capacity) {
    capacity_open(twin, capacity);
    for (int at = 0; at < twin->presents; at++)
        capacity->granted[at] = (Split){0, 0};
}

/* Place everything anew with another split for one job, as tasks cannot be given back one by one. */
static bool exchange(Twin *twin, Capacity *capacity, int at, Split size) {
    Case *in = twin->in;
    int64_t *used = twin->used;
    memset(used, 0, sizeof(int64_t) * (size_t)in->classes);
    for (int other = 0; other < twin->presents; other++) {
        const Job *spec = &in->job[twin->present[other]];
        Split granted = other == at ? size : capacity->granted[other];
        used[spec->worker_class] += granted.workers;
        used[spec->ps_class] += granted.ps;
        if (granted.workers + granted.ps && !proven(in, used) && !all_placed(twin, used))
            return false;
    }
    memcpy(capacity->taken, used, sizeof(int64_t) * (size_t)in->classes);
    capacity->refused_count = 0;
    return true;
}

/* Give the job at a place among the present `size` in place of what it was granted, if that fits: as `DecisionCapacity.change`. */
bool capacity_change(Twin *twin, Capacity *capacity, int at, Split size) {
    int job = twin->present[at];
    const Job *spec = &twin->in->job[job];
    Split granted = capacity->granted[at];
    int workers = size.workers - granted.workers, ps = size.ps - granted.ps;
    if (twin->in->pooled || (workers >= 0 && ps >= 0)) {
        if (!capacity_extend(twin, capacity, job, granted, size))
            return false;
    } else {
        int64_t cpu = capacity->free_cpu - workers * spec->worker_cpu - ps * spec->ps_cpu;
        int64_t gpu = capacity->free_gpu - workers * spec->worker_gpu - ps * spec->ps_gpu;
        if (cpu < 0 || gpu < 0 || !exchange(twin, capacity, at, size))
            return false;
        capacity->free_cpu = cpu;
        capacity->free_gpu = gpu;
    }
    capacity->granted[at] = size;
    return true;
}

static bool contains(Split all, Split part) { return all.workers >= part.workers && all.ps >= part.ps; }

static void settle(Twin *twin, Capacity *capacity, int at, const Split *candidates, int count, bool grow) {
    const Job *spec = &twin->in->job[twin->present[at]];
    Split granted = capacity->granted[at];
    int64_t most_cpu = capacity->free_cpu + granted.workers * spec->worker_cpu + granted.ps * spec->ps_cpu;
    int64_t most_gpu = capacity->free_gpu + granted.workers * spec->worker_gpu + granted.ps * spec->ps_gpu;
    for (int i = 0; i < count; i++) {
        Split one = candidates[i];
        if ((grow && !contains(one, granted)) || one.workers * spec->worker_cpu + one.ps * spec->ps_cpu > most_cpu ||
            one.workers * spec->worker_gpu + one.ps * spec->ps_gpu > most_gpu)
            continue;
        if ((one.workers == granted.workers && one.ps == granted.ps) || capacity_change(twin, capacity, at, one))
            return;
    }
}

/* Give a job the first candidate that fits in place of what it was granted, or that comes to the same. */
void capacity_settle(Twin *twin, Capacity *capacity, int at, const Split *candidates, int count) {
    settle(twin, capacity, at, candidates, count, false);
}

/* Add what a job lacks to the first candidate that contains what it was granted, and fits. */
void capacity_grow(Twin *twin, Capacity *capacity, int at, const Split *candidates, int count) {
    settle(twin, capacity, at, candidates, count, true);
}

/* The decision: what the present jobs were granted. */
void capacity_grant(Twin *twin, const Capacity *capacity) {
    for (int at = 0; at < twin->presents; at++) {
        State *job = &twin->job[twin->present[at]];
        job->at = at;
        job->granted = capacity->granted[at];
    }
}
