/* Beliefs about speed: a Gaussian process per type, raised where it is uncertain.

   Follows policy_net.throughput.gaussian_process and type_belief. */

#include "twin.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMISM 1.0
#define NOISE 0.27
#define DEAD_AFTER_SECONDS 600.0
#define FARTHEST 100.0
#define LARGEST_LOG_SPEED 50.0
#define REFIT_GROWTH 0.1
#define DOUBTED_FROM 5.0
#define DOUBTED_DEVIATIONS 2.0
#define MOST_DOUBTED 10

/* Whether a type is believed to be unable to train there. */
bool is_dead(const Cell *cell) { return cell->samples <= 0 && cell->seconds >= DEAD_AFTER_SECONDS; }

static int position_of(const Type *type, int ps, int workers) {
    return type->uses_ps ? (ps - 1) * (SIDE - 1) + workers - 1 : workers - 1;
}

static double clipped(double value, double least, double most) { return value < least ? least : value > most ? most : value; }

/* The process conditioned on what was seen: of the log speeds the mean, the same raised by its deviation, and that. */
static bool posterior(const Type *type, int n, double *mean, double *log_speed, double *sd) {
    int seen = (int)type->conditioned;
    double own = type->spread_cell * type->spread_cell;
    if (!seen) {
        for (int at = 0; at < n; at++) {
            sd[at] = sqrt(type->prior_smooth[at * n + at] + own);
            /* Nothing is known of the scale of a type of which no speed was seen: that is no reason to expect much. */
            mean[at] = type->prior_mean[at];
            log_speed[at] = mean[at] + (type->prior_of_type ? OPTIMISM * type->prior_sd_shape[at] : 0.0);
        }
        return true;
    }
    double *lower = malloc(sizeof(double) * ((size_t)seen * seen + (size_t)seen * n + (size_t)seen));
    if (!lower)
        return false;
    double *explained = lower + seen * seen, *residual = explained + (size_t)seen * n;
    int position[CELLS];
    double noise[CELLS], largest = exp(LARGEST_LOG_SPEED), weights = 0.0, unit = 0.0, farthest = log(FARTHEST);
    for (int i = 0; i < seen; i++) {
        const Cell *cell = &type->conditioned_on[i];
        position[i] = position_of(type, (int)cell->ps, (int)cell->workers);
        noise[i] = NOISE * NOISE / (double)cell->count;
        double speed = clipped(cell->samples / cell->seconds, 1 / largest, largest);
        residual[i] = log(speed) - noise[i] / 2 - type->prior_mean[position[i]];
        double weight = 1 / (type->spread_smooth * type->spread_smooth + noise[i]);
        unit += residual[i] * weight;
        weights += weight;
    }
    unit = type->prior_of_type ? 0.0 : unit / weights;
    for (int i = 0; i < seen; i++) {
        residual[i] = clipped(residual[i] - unit, -farthest, farthest);
        memcpy(explained + (size_t)i * n, type->prior_smooth + (size_t)position[i] * n, sizeof(double) * n);
        explained[(size_t)i * n + position[i]] += own;
        for (int k = 0; k <= i; k++)
            lower[i * seen + k] = type->prior_smooth[(size_t)position[i] * n + position[k]];
        lower[i * seen + i] += own + noise[i];
    }
    for (int i = 0; i < seen; i++) { /* Cholesky, and forward substitution of cross-covariance and residual at once */
        double *row = lower + (size_t)i * seen, *target = explained + (size_t)i * n;
        for (int k = 0; k < i; k++) {
            double sum = row[k];
            for (int m = 0; m < k; m++)
                sum -= row[m] * lower[(size_t)k * seen + m];
            row[k] = sum / lower[(size_t)k * seen + k];
        }
        double diagonal = row[i];
        for (int k = 0; k < i; k++)
            diagonal -= row[k] * row[k];
        diagonal = sqrt(diagonal);
        row[i] = diagonal;
        for (int k = 0; k < i; k++) {
            const double *before = explained + (size_t)k * n;
            double factor = row[k];
            for (int at = 0; at < n; at++)
                target[at] -= factor * before[at];
            residual[i] -= factor * residual[k];
        }
        for (int at = 0; at < n; at++)
            target[at] /= diagonal;
        residual[i] /= diagonal;
    }
    for (int at = 0; at < n; at++)
        log_speed[at] = 0.0, sd[at] = 0.0;
    for (int i = 0; i < seen; i++)
        for (int at = 0; at < n; at++) {
            double part = explained[(size_t)i * n + at];
            log_speed[at] += part * residual[i];
            sd[at] += part * part;
        }
    for (int at = 0; at < n; at++) {
        double variance = type->prior_smooth[(size_t)at * n + at] + own - sd[at];
        sd[at] = sqrt(variance > 0.0 ? variance : 0.0);
        mean[at] = type->prior_mean[at] + unit + clipped(log_speed[at], -2 * farthest, 2 * farthest);
        log_speed[at] = mean[at] + OPTIMISM * sd[at];
    }
    free(lower);
    return true;
}

/* Count a type's speeds in the prices of the present decision. */
void belief_count(Twin *twin, int index) {
    Belief *belief = &twin->belief[index];
    double exponent = twin->speed_exponent;
    for (int cell = 0; cell < CELLS; cell++)
        belief->utility[cell] = belief->speed[cell] > 0.0 ? pow(belief->speed[cell], exponent) / exponent : 0.0;
    belief->version++;
}

static void use(Twin *twin, int index, const double *speed) {
    Belief *belief = &twin->belief[index];
    int usual = twin->in->type[index].uses_ps ? CELLS : SIDE;
    memcpy(belief->speed, speed, sizeof belief->speed);
    belief->fastest = 0.0;
    for (int cell = 0; cell < usual; cell++)
        if (speed[cell] > belief->fastest)
            belief->fastest = speed[cell];
    if (twin->in->scheduler == SET)
        belief_count(twin, index);
    else
        belief->version++;
}

static bool fit(Twin *twin, int index) {
    Type *type = &twin->in->type[index];
    Belief *belief = &twin->belief[index];
    int n = (int)type->splits;
    double mean[CELLS], log_speed[CELLS], sd[CELLS], speed[CELLS] = {0};
    if (belief->count >= type->refit_at) {
        type->conditioned = 0;
        for (int64_t i = 0; i < type->cells; i++)
            if (type->cell[i].samples > 0)
                type->conditioned_on[type->conditioned++] = type->cell[i];
        int64_t growth = (int64_t)(REFIT_GROWTH * (double)belief->count);
        type->refit_at = belief->count + (growth > 1 ? growth : 1);
    }
    if (!posterior(type, n, mean, log_speed, sd))
        return false;
    memset(belief->sd, 0, sizeof belief->sd);
    memset(belief->median, 0, sizeof belief->median);
    for (int at = 0; at < n; at++) {
        int cell = type->uses_ps ? cell_of(1 + at / (SIDE - 1), 1 + at % (SIDE - 1)) : cell_of(0, 1 + at);
        speed[cell] = exp(clipped(log_speed[at], -2 * LARGEST_LOG_SPEED, 2 * LARGEST_LOG_SPEED));
        if (twin->in->plans_places)
            belief->median[cell] = exp(clipped(mean[at], -2 * LARGEST_LOG_SPEED, 2 * LARGEST_LOG_SPEED));
        belief->sd[cell] = sd[at] < 1.0 ? sd[at] : 1.0;
    }
    bool blank = !belief->scale && twin->in->scheduler == SET; /* others hope for nothing */
    for (int64_t i = 0; i < type->cells; i++)
        if (is_dead(&type->cell[i])) {
            int cell = cell_of((int)type->cell[i].ps, (int)type->cell[i].workers);
            speed[cell] = belief->median[cell] = 0.0;
            blank = false;
        }
    belief->fitted = true;
    use(twin, index, blank ? type->hoped : speed);
    return true;
}

/* Bring a type's beliefs up to date before a decision; false without memory. */
bool belief_refresh(Twin *twin, int index) {
    Type *type = &twin->in->type[index];
    Belief *belief = &twin->belief[index];
    if (!twin->in->learns && !twin->in->fits) {
        if (!belief->version)
            use(twin, index, type->given);
        return true;
    }
    if (!type->known) {
        if (!belief->version) {
            use(twin, index, type->hoped);
            for (int cell = 0; cell < CELLS; cell++)
                belief->sd[cell] = type->deviation_unseen;
        }
        return true;
    }
    if (!belief->fitted) {
        belief->scale = type->prior_of_type;
        belief->count = 0;
        for (int64_t i = 0; i < type->cells; i++) {
            belief->count += type->cell[i].count;
            belief->scale = belief->scale || type->cell[i].samples > 0;
        }
        return fit(twin, index);
    }
    return belief->count < type->refit_at || fit(twin, index);
}

/* Whether a report is too far from the last fit; not where that rests on little, or one speed is 0. */
static bool is_doubtful(const Twin *twin, int index, int cell, double speed) {
    const Type *type = &twin->in->type[index];
    const Belief *belief = &twin->belief[index];
    if (twin->in->fit || !belief->fitted || !type->conditioned || belief->count < MOST_DOUBTED)
        return false;
    double believed = belief->speed[cell];
    return believed > 0.0 && speed > 0.0 && fabs(log(speed / believed)) > log(DOUBTED_FROM) + DOUBTED_DEVIATIONS * belief->sd[cell];
}

/* Take in what a job did between two decisions. */
void belief_observe(Twin *twin, int index, Split running, double samples, double seconds) {
    Type *type = &twin->in->type[index];
    Belief *belief = &twin->belief[index];
    bool has_cell = running.workers > 0 && (type->uses_ps ? running.ps > 0 : running.ps == 0);
    if (!has_cell || !(samples >= 0 && samples < INFINITY && seconds > 0 && seconds < INFINITY))
        return;
    type->known = true;
    if (samples <= 0) { /* after a report of nothing the next one is believed: progress may come in lumps */
        type->doubted = MOST_DOUBTED;
    } else {
        type->doubted = is_doubtful(twin, index, cell_of(running.ps, running.workers), samples / seconds) ? type->doubted + 1 : 0;
        if (type->doubted && type->doubted <= MOST_DOUBTED)
            return;
    }
    Cell *cell = NULL;
    for (int64_t i = 0; i < type->cells && !cell; i++)
        if (type->cell[i].ps == running.ps && type->cell[i].workers == running.workers)
            cell = &type->cell[i];
    if (!cell) {
        cell = &type->cell[type->cells++];
        *cell = (Cell){.ps = running.ps, .workers = running.workers};
        type->refit_at = 0;
    }
    bool was_dead = is_dead(cell);
    cell->samples = fmin(cell->samples + samples, DBL_MAX);
    cell->seconds = fmin(cell->seconds + seconds, DBL_MAX);
    cell->count++;
    belief->count++;
    if (is_dead(cell) != was_dead)
        type->refit_at = 0;
    if (!belief->scale && cell->samples > 0) {
        belief->scale = true;
        belief->fitted = false; /* until now its speeds were those hoped for */
    }
}
