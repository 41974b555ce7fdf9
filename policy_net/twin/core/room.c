/* Room for a plan's tasks: the cluster's sums, and on nodes whether `spread` would place every task.

   Follows policy_net.baselines.room, placement.capacity and placement.spread. A yes is exact at every moment; a no is
   final for the decision. */

#include "twin.h"

#include <stdlib.h>
#include <string.h>

void room_open(Twin *twin) {
    twin->free_cpu = twin->total_cpu;
    twin->free_gpu = twin->total_gpu;
    twin->refused_count = 0;
    memset(twin->taken, 0, sizeof(int64_t) * (size_t)twin->in->classes);
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

static void sink(Loaded *heap, int count, int parent) {
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

static int64_t room_on(const Twin *twin, int64_t class, int64_t node, int64_t most) {
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

/* Place so many tasks of a class, each on the least loaded node; says how many found one, and where if asked. */
int64_t spread_class(Twin *twin, int64_t class, int64_t count, int *placed) {
    const Case *in = twin->in;
    Loaded *heap = twin->loads;
    int nodes = 0;
    for (int64_t node = 0; node < in->nodes; node++)
        if (room_on(twin, class, node, count) > 0)
            heap[nodes++] = (Loaded){load_of(twin, class, node), (int)node};
    for (int parent = nodes / 2 - 1; parent >= 0; parent--)
        sink(heap, nodes, parent);
    int64_t done = 0;
    while (nodes && done < count) {
        int node = heap[0].node;
        if (placed)
            placed[done] = node;
        done++;
        twin->left_cpu[node] -= in->class_cpu[class];
        twin->left_gpu[node] -= in->class_gpu[class];
        if (room_on(twin, class, node, 1) > 0)
            heap[0].load = load_of(twin, class, node);
        else
            heap[0] = heap[--nodes];
        if (nodes)
            sink(heap, nodes, 0);
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

static bool nodes_take(Twin *twin, const Job *spec, int workers, int ps) {
    Case *in = twin->in;
    int64_t worker = spec->worker_class, server = spec->ps_class;
    /* What was refused once is refused for at least as many tasks of the same kind, and for these very tasks. */
    for (int i = 0; i < twin->refused_count; i++) {
        const int *no = twin->refused[i];
        bool alike = (no[0] == worker || !workers) && (no[1] == server || !ps);
        if (alike && ((workers == no[2] && ps == no[3]) || (no[0] == worker && no[1] == server && workers >= no[2] && ps >= no[3])))
            return false;
    }
    memcpy(twin->used, twin->taken, sizeof(int64_t) * (size_t)in->classes);
    twin->used[worker] += workers;
    twin->used[server] += ps;
    if (!proven(in, twin->used) && !all_placed(twin, twin->used)) {
        if (twin->refused_count == twin->refused_room) {
            void *more = realloc(twin->refused, sizeof *twin->refused * (size_t)(2 * twin->refused_room));
            if (!more) {
                twin->lacks_memory = true;
                return false;
            }
            twin->refused = more;
            twin->refused_room *= 2;
        }
        int *no = twin->refused[twin->refused_count++];
        no[0] = (int)worker, no[1] = (int)server, no[2] = workers, no[3] = ps;
        return false;
    }
    memcpy(twin->taken, twin->used, sizeof(int64_t) * (size_t)in->classes);
    return true;
}

/* Give a job `target` in place of the smaller `held`, if that fits. */
bool room_take(Twin *twin, int job, Split held, Split target) {
    const Job *spec = &twin->in->job[job];
    int workers = target.workers - held.workers, ps = target.ps - held.ps;
    int64_t cpu = twin->free_cpu - workers * spec->worker_cpu - ps * spec->ps_cpu;
    int64_t gpu = twin->free_gpu - workers * spec->worker_gpu - ps * spec->ps_gpu;
    if (cpu < 0 || gpu < 0 || (!twin->in->pooled && !nodes_take(twin, spec, workers, ps)))
        return false;
    twin->free_cpu = cpu;
    twin->free_gpu = gpu;
    return true;
}
