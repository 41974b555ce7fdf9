/* The best next step of a job from whatever it was granted, kept until the type's speeds change.

   Follows policy_net.set_policy.steps, and the tables of policy_net.set_policy.pools. */

#include "places/places.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is believed of as few nodes as possible, of every number of workers; 0 where they do not fit. */
static void find_factors(const Twin *twin, const Table *table, double *factor) {
    for (int workers = table->min_workers; workers <= table->max_workers; workers++) {
        int nodes = table->class < 0 ? 1 : fewest_nodes(twin, table->class, workers);
        factor[workers] = nodes > 1 ? planned_effect(twin, table->type, workers, nodes) : nodes;
    }
}

static void fill_table(const Twin *twin, Table *table) {
    const Belief *belief = &twin->belief[table->type];
    double factor[APART], exponent = twin->speed_exponent;
    find_factors(twin, table, factor);
    memset(table->speed, 0, sizeof table->speed);
    memset(table->utility, 0, sizeof table->utility);
    table->best_speed = table->slowest_speed = 0.0;
    table->best = (Split){0, 0};
    for (int ps = table->min_ps; ps <= table->max_ps; ps++)
        for (int workers = table->min_workers; workers <= table->max_workers; workers++) {
            int cell = cell_of(ps, workers);
            double speed = table->speed[cell] = belief->speed[cell] * factor[workers];
            if (!(speed > 0.0))
                continue;
            table->utility[cell] = speed == belief->speed[cell] ? belief->utility[cell] : pow(speed, exponent) / exponent;
            if (table->slowest_speed == 0.0 || speed < table->slowest_speed)
                table->slowest_speed = speed;
            if (speed > table->best_speed || (speed == table->best_speed && ps + workers < table->best.ps + table->best.workers)) {
                table->best_speed = speed;
                table->best = (Split){workers, ps};
            }
        }
    table->ps_price = twin->ps_price;
    table->version = belief->version;
    table->places = twin->pool ? twin->pool->version : 0;
    table->fills++;
}

/* The table of a type under these caps, for workers of a class or `ANYWHERE`; NULL without memory. */
Table *table_of(Twin *twin, int class, int type, int max_ps, int max_workers, int min_ps, int min_workers) {
    int64_t key = (((((class + 1) * twin->in->types + type) * APART + max_ps) * APART + max_workers) * APART + min_ps) * APART + min_workers;
    int64_t mask = twin->table_buckets - 1;
    int64_t at = (int64_t)(((uint64_t)key * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (twin->table[at] && twin->table[at]->key != key)
        at = (at + 1) & mask;
    Table *table = twin->table[at];
    if (!table) {
        if (2 * (twin->tables + 1) > twin->table_buckets) {
            Table **before = twin->table;
            int64_t buckets = twin->table_buckets;
            Table **after = calloc((size_t)(2 * buckets), sizeof(Table *));
            if (!after)
                return NULL;
            twin->table = after;
            twin->table_buckets = 2 * buckets;
            for (int64_t i = 0; i < buckets; i++)
                if (before[i]) {
                    int64_t to = (int64_t)(((uint64_t)before[i]->key * 0x9E3779B97F4A7C15u) >> 32) & (2 * buckets - 1);
                    while (after[to])
                        to = (to + 1) & (2 * buckets - 1);
                    after[to] = before[i];
                }
            free(before);
            return table_of(twin, class, type, max_ps, max_workers, min_ps, min_workers);
        }
        table = twin->table[at] = calloc(1, sizeof(Table));
        if (!table)
            return NULL;
        twin->tables++;
        table->key = key;
        table->class = class;
        table->type = type;
        table->max_ps = max_ps, table->max_workers = max_workers, table->min_ps = min_ps, table->min_workers = min_workers;
    }
    if (table->version != twin->belief[type].version || (class >= 0 && table->places != twin->pool->version))
        fill_table(twin, table);
    return table;
}

/* The best step from here with no limit but the caps; slope 0 if nothing gains. */
Step table_step(Table *table, Split granted) {
    int from = cell_of(granted.ps, granted.workers);
    double spent = table_cost(table, granted.ps, granted.workers);
    if (table->step_version[from] == table->fills)
        return table->step[from];
    Step best = {.slope = 0.0};
    for (int ps = granted.ps; ps <= table->max_ps; ps++)
        for (int workers = granted.workers; workers <= table->max_workers; workers++) {
            int cell = cell_of(ps, workers);
            double slope = cell == from ? 0.0 : (table->utility[cell] - table->utility[from]) / (table_cost(table, ps, workers) - spent);
            if (slope > best.slope)
                best = (Step){{workers, ps}, slope, 0.0};
        }
    if (best.slope > 0.0)
        best.log_share = log(table->speed[cell_of(best.size.ps, best.size.workers)] / table->best_speed);
    table->step[from] = best;
    table->step_version[from] = table->fills;
    return best;
}

/* The utility of a split to a job, to which another size than the running one may be worth less. */
double kept_utility(const State *job, int cell) {
    double utility = job->steps->utility[cell];
    return job->keeps && cell != cell_of(job->running.ps, job->running.workers) ? utility * job->other_share : utility;
}

/* The best step of a job from here with no limit but the caps. */
Step kept_step(const State *job, Split granted) {
    Table *table = job->steps;
    if (!job->keeps)
        return table_step(table, granted);
    int from = cell_of(granted.ps, granted.workers);
    double spent = table_cost(table, granted.ps, granted.workers), utility = kept_utility(job, from);
    Step best = {.slope = 0.0};
    for (int ps = granted.ps; ps <= table->max_ps; ps++)
        for (int workers = granted.workers; workers <= table->max_workers; workers++) {
            int cell = cell_of(ps, workers);
            double slope = cell == from ? 0.0 : (kept_utility(job, cell) - utility) / (table_cost(table, ps, workers) - spent);
            if (slope > best.slope)
                best = (Step){{workers, ps}, slope, 0.0};
        }
    if (best.slope > 0.0)
        best.log_share = log(table->speed[cell_of(best.size.ps, best.size.workers)] / table->best_speed);
    return best;
}

/* The speed with a split; 0 beyond the caps, and where it does not train. */
double table_speed(const Table *table, Split split) {
    bool within = split.ps <= table->max_ps && split.workers <= table->max_workers;
    return within ? table->speed[cell_of(split.ps, split.workers)] : 0.0;
}
