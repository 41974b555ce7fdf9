/* Where the workers of a plan lie: over how many nodes each job's are spread, or packed.

   Follows policy_net.placement.spread and pack; asked only where lying apart makes a difference. */

#include "twin.h"

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

/* Take room for so many tasks on as few nodes as possible; over how many, or -1 if there is too little in all. */
static int pack(Twin *twin, int64_t class, int64_t count) {
    const Case *in = twin->in;
    int64_t cpu = in->class_cpu[class], gpu = in->class_gpu[class];
    const int64_t *by = gpu ? twin->left_gpu : twin->left_cpu;
    int apart = 0;
    for (int64_t node = 0; node < in->nodes; node++) {
        twin->room[node] = count;
        if (cpu && twin->left_cpu[node] / cpu < twin->room[node])
            twin->room[node] = twin->left_cpu[node] / cpu;
        if (gpu && twin->left_gpu[node] / gpu < twin->room[node])
            twin->room[node] = twin->left_gpu[node] / gpu;
    }
    while (count) {
        int64_t chosen = -1, emptiest = 0;
        for (int64_t node = 0; node < in->nodes; node++) {
            if (twin->room[node] >= count && (chosen < 0 || by[node] < by[chosen]))
                chosen = node;
            if (twin->room[node] > twin->room[emptiest])
                emptiest = node;
        }
        int64_t number = count;
        if (chosen < 0) {
            chosen = emptiest;
            number = twin->room[chosen];
            if (!number)
                return -1;
        }
        twin->left_cpu[chosen] -= number * cpu;
        twin->left_gpu[chosen] -= number * gpu;
        twin->room[chosen] = 0;
        count -= number;
        apart++;
    }
    return apart;
}

static bool packed(Twin *twin, int pieces) {
    qsort(twin->piece, (size_t)pieces, sizeof(Piece), packing_order);
    nodes_clear(twin);
    for (int i = 0; i < pieces; i++) {
        const Piece *piece = &twin->piece[i];
        int apart = pack(twin, piece->class, piece->count);
        if (apart < 0)
            return false;
        if (piece->workers)
            twin->job[piece->job].apart = apart;
    }
    return true;
}

static bool spread(Twin *twin, int pieces) {
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
            for (int64_t task = 0; task < piece->count; task++, node++)
                if (twin->stamp[*node] != twin->stamps) {
                    twin->stamp[*node] = twin->stamps;
                    apart++;
                }
            if (piece->workers)
                twin->job[piece->job].apart = apart;
        }
    }
    return true;
}

/* Place what was granted; false if a task finds no node, which the plan has made sure of. */
bool place(Twin *twin) {
    int pieces = 0;
    for (int role = 0; role < 2; role++)
        for (int at = 0; at < twin->presents; at++) {
            int index = twin->present[at];
            const Job *spec = &twin->in->job[index];
            Split granted = twin->job[index].granted;
            /* Of one class, a job's workers stand before its servers where tasks are spread. */
            Piece piece = {role ? spec->ps_class : spec->worker_class, role ? granted.ps : granted.workers, index, 0, !role};
            piece.order = twin->in->packed ? pieces : 2 * at + role;
            if (piece.count)
                twin->piece[pieces++] = piece;
        }
    if (twin->in->packed && packed(twin, pieces))
        return true;
    for (int i = 0; twin->in->packed && i < pieces; i++) /* packing never costs capacity */
        twin->piece[i].order = 2 * twin->job[twin->piece[i].job].at + !twin->piece[i].workers;
    return spread(twin, pieces);
}
