/* Placement of a plan's workers: over how many nodes each job's are spread, or packed.

   Follows policy_net.placement.spread and pack; used only where workers apart are slower. */

#include "places/places.h"

#include <stdlib.h>
#include <string.h>

typedef struct Piece {
    int64_t class, count;
    int job, order;
    bool workers;
} Piece;

size_t piece_size(void) { return sizeof(Piece); }

/* Those that need most first, the largest before smaller ones, then by arrival. */
static int packing_order(const void *a, const void *b) {
    const Piece *first = a, *second = b;
    if (first->class != second->class)
        return first->class < second->class ? -1 : 1;
    if (first->count != second->count)
        return first->count > second->count ? -1 : 1;
    return first->order - second->order;
}

static int spreading_order(const void *a, const void *b) {
    const Piece *first = a, *second = b;
    if (first->class != second->class)
        return first->class < second->class ? -1 : 1;
    return first->order - second->order;
}

/* So many more tasks of a job on a node. */
static void add(Placement *placement, int node, int64_t number, bool workers) {
    int at = 0;
    while (at < placement->count && placement->share[at].node < node)
        at++;
    if (at == placement->count || placement->share[at].node != node) {
        memmove(&placement->share[at + 1], &placement->share[at], sizeof(Share) * (size_t)(placement->count - at));
        placement->share[at] = (Share){node, 0, 0};
        placement->count++;
    }
    *(workers ? &placement->share[at].workers : &placement->share[at].ps) += (int)number;
}

/* Take capacity for so many tasks of a job; over how many nodes, or -1 if there is too little in all. `whole`: on as few
   nodes as possible, the fullest that holds all; otherwise they fill up the fullest ones. `placement`: where they go; may be NULL. */
int pack(Twin *twin, int64_t class, int64_t count, bool whole, bool workers, Placement *placement) {
    const Case *in = twin->in;
    int64_t cpu = in->class_cpu[class], gpu = in->class_gpu[class];
    const int64_t *by = gpu ? twin->left_gpu : twin->left_cpu;
    int apart = 0;
    for (int64_t node = 0; node < in->nodes; node++) {
        twin->fitting[node] = count;
        if (cpu && twin->left_cpu[node] / cpu < twin->fitting[node])
            twin->fitting[node] = twin->left_cpu[node] / cpu;
        if (gpu && twin->left_gpu[node] / gpu < twin->fitting[node])
            twin->fitting[node] = twin->left_gpu[node] / gpu;
    }
    while (count) {
        int64_t chosen = -1, emptiest = 0;
        for (int64_t node = 0; node < in->nodes; node++) {
            if (twin->fitting[node] >= (whole ? count : 1) && (chosen < 0 || by[node] < by[chosen]))
                chosen = node;
            if (twin->fitting[node] > twin->fitting[emptiest])
                emptiest = node;
        }
        if (chosen < 0)
            chosen = emptiest;
        int64_t number = twin->fitting[chosen] < count ? twin->fitting[chosen] : count;
        if (!number)
            return -1;
        if (placement)
            add(placement, (int)chosen, number, workers);
        twin->left_cpu[chosen] -= number * cpu;
        twin->left_gpu[chosen] -= number * gpu;
        twin->fitting[chosen] = 0;
        count -= number;
        apart++;
    }
    return apart;
}

static bool packed(Twin *twin, int pieces, Placement *placements) {
    qsort(twin->piece, (size_t)pieces, sizeof(Piece), packing_order);
    nodes_clear(twin);
    for (int i = 0; i < pieces; i++) {
        const Piece *piece = &twin->piece[i];
        int apart = pack(twin, piece->class, piece->count, true, piece->workers, placements ? &placements[piece->job] : NULL);
        if (apart < 0)
            return false;
        if (piece->workers)
            twin->job[piece->job].apart = apart;
    }
    return true;
}

/* Place class by class, each task on the least loaded node; `placements`: where those of every job go; may be NULL. */
bool spread(Twin *twin, int pieces, Placement *placements) {
    qsort(twin->piece, (size_t)pieces, sizeof(Piece), spreading_order);
    nodes_clear(twin);
    for (int first = 0, next; first < pieces; first = next) {
        int64_t count = 0;
        for (next = first; next < pieces && twin->piece[next].class == twin->piece[first].class; next++)
            count += twin->piece[next].count;
        if (spread_class(twin, twin->piece[first].class, count, twin->placed) < count)
            return false;
        const int *node = twin->placed;
        for (int i = first; i < next; i++) {
            const Piece *piece = &twin->piece[i];
            int apart = 0;
            twin->stamps++;
            for (int64_t task = 0; task < piece->count; task++, node++) {
                if (placements)
                    add(&placements[piece->job], *node, 1, piece->workers);
                if (twin->stamp[*node] != twin->stamps) {
                    twin->stamp[*node] = twin->stamps;
                    apart++;
                }
            }
            if (piece->workers)
                twin->job[piece->job].apart = apart;
        }
    }
    return true;
}

/* State so many tasks of a job, if any, behind the other pieces; how many there are then. */
int add_piece(Twin *twin, int index, bool workers, int order, int pieces) {
    const Job *spec = &twin->in->job[index];
    Split granted = twin->job[index].granted;
    int64_t class = workers ? spec->worker_class : spec->ps_class, count = workers ? granted.workers : granted.ps;
    if (count)
        twin->piece[pieces++] = (Piece){class, count, index, order, workers};
    return pieces;
}

static void forget(const Twin *twin, Placement *placements) {
    for (int at = 0; placements && at < twin->presents; at++)
        placements[twin->present[at]].count = 0;
}

/* Place what was granted; false if a task finds no node, which the plan has made sure of. `placements`: where the tasks of
   every present job go; may be NULL. */
bool place(Twin *twin, Placement *placements) {
    int pieces = 0;
    for (int role = 0; role < 2; role++)
        for (int at = 0; at < twin->presents; at++) {
            /* Of one class, a job's workers stand before its servers where tasks are spread. */
            int order = twin->in->packed ? pieces : 2 * at + role;
            pieces = add_piece(twin, twin->present[at], !role, order, pieces);
        }
    forget(twin, placements);
    if (twin->in->packed && packed(twin, pieces, placements))
        return true;
    forget(twin, placements);
    for (int i = 0; twin->in->packed && i < pieces; i++) /* packing never costs capacity */
        twin->piece[i].order = 2 * twin->job[twin->piece[i].job].at + !twin->piece[i].workers;
    return spread(twin, pieces, placements);
}
