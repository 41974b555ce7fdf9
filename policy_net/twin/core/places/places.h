/* Plans that say where tasks go: what they know of places, and where jobs are.

   Only where all nodes are one pool, and jobs move freely. */

#ifndef FEDL2_PLACES_H
#define FEDL2_PLACES_H

#include "../twin.h"

#define ANYWHERE (-1) /* in place of a class of workers: speeds on any nodes */

/* A running mean of logarithms: `policy_net.twin.memory.MEAN`. */
typedef struct Mean {
    double mean;
    int64_t count;
} Mean;

/* A job in the order in which they choose their nodes. */
typedef struct {
    int64_t class;
    double loss;
    int job, workers, at;
    bool loose;
} Chooser;

typedef struct Pool {
    int64_t version; /* rises when anything that is believed of places changes */
    int *fewest;     /* of every class, APART: the fewest empty nodes for so many workers; 0: they do not fit */
    Placement *placement, *staying, *anew; /* of every job: now, and in two plans */
    Chooser *chooser;
} Pool;

/* Of what distance does: the means of kinds of jobs; then of every type its own, and by nodes, two or more, and workers. */
enum { SPAN_KINDS = 3, SPAN_SIZES = 7, SPANS_OF_TYPE = 1 + 2 * SPAN_SIZES };
/* how many reports there were, at how many beliefs follow next, and how often they did in this run */
enum { REPORTS, REFIT_AT, FITS };

/* 0 where they do not fit. */
static inline int fewest_nodes(const Twin *twin, int64_t class, int workers) { return twin->pool->fewest[class * APART + workers]; }

bool pool_open(Twin *twin);
void pool_renew(Twin *twin);
void pool_close(Twin *twin);
double planned_effect(const Twin *twin, int type, int workers, int nodes);
double samples_together(const Twin *twin, int job);
bool places_observe(Twin *twin);
bool place_as_planned(Twin *twin);

int pack(Twin *twin, int64_t class, int64_t count, bool whole, bool workers, Placement *placement);
int add_piece(Twin *twin, int index, bool workers, int order, int pieces);
bool spread(Twin *twin, int pieces, Placement *placements);

#endif
