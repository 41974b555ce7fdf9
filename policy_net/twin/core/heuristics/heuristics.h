/* Heuristics: their decisions, by code in schedulers.c, and what they do for each other. */

#ifndef FEDL2_HEURISTICS_H
#define FEDL2_HEURISTICS_H

#include "../twin.h"

#define FAIRNESS_EXPONENT 0.25 /* of (speed / remaining work) in a job's utility */

bool fits_refresh(Twin *twin, int type);
bool fit_type(Type *type);

bool (*scheduler_of(int64_t code))(Twin *twin);
bool fifo(Twin *twin);
bool fifo_backfill(Twin *twin);
bool fifo_easy(Twin *twin);
bool las(Twin *twin);
bool srtf(Twin *twin);
bool drf(Twin *twin);
bool drf_peak(Twin *twin);
bool tetris(Twin *twin);
bool marginal(Twin *twin);
bool optimus(Twin *twin);
bool optimus_sr(Twin *twin);
bool dl2(Twin *twin);

Split first_grant(const Job *spec);
Split requested_size(Twin *twin, int job);
bool is_running(Twin *twin, int job);
void keep_running(Twin *twin, Capacity *capacity);
void serve(Twin *twin, Capacity *capacity, const int *order);
bool heuristic_open(Twin *twin);
double remaining_seconds(const Twin *twin, int job, Split size);
void ascending_order(Twin *twin, const double *key, int *order);

const Hull *hull_of(Twin *twin, int job);

#endif
