/* Speeds in Optimus's form, fitted to what was seen of a type without negative coefficients.

   Follows policy_net.throughput.parametric and nonnegative; sums are taken in the same order. */

#include "heuristics.h"

#include <math.h>
#include <string.h>

#define TERMS 5
#define SHAPE_ERROR 0.15
#define NOISE 0.27
#define FARTHEST 100.0
#define LARGEST_LOG_SPEED 50.0
#define MOST_STEPS 100
#define ROUNDING 1e-12
#define LEAST_PIVOT 1e-13

typedef struct {
    int terms;
    double product[TERMS][TERMS], target[TERMS];
} Moments;

/* Terms, in rising order. */
typedef struct {
    int count, term[TERMS];
} Chosen;

static bool contains(const Chosen *chosen, int term) {
    for (int i = 0; i < chosen->count; i++)
        if (chosen->term[i] == term)
            return true;
    return false;
}

static void insert(Chosen *chosen, int term) {
    int at = chosen->count++;
    for (; at > 0 && chosen->term[at - 1] > term; at--)
        chosen->term[at] = chosen->term[at - 1];
    chosen->term[at] = term;
}

/* Which coefficient to let grow; negative: none. */
static int steepest(const Moments *moments, const double *found, const Chosen *positive, const Chosen *refused) {
    int chosen = -1;
    double largest = 0.0;
    for (int one = 0; one < moments->terms; one++) {
        if (contains(positive, one) || contains(refused, one))
            continue;
        double slope = moments->target[one], size = fabs(moments->target[one]);
        for (int other = 0; other < moments->terms; other++) {
            double term = (other <= one ? moments->product[one][other] : moments->product[other][one]) * found[other];
            slope -= term;
            size += fabs(term);
        }
        if (slope > ROUNDING * size && slope > largest) {
            chosen = one;
            largest = slope;
        }
    }
    return chosen;
}

/* The plain solution of the chosen coefficients, the others zero; false without a sound one. */
static bool solve(const Moments *moments, const Chosen *chosen, double *solution) {
    double lower[TERMS][TERMS], right[TERMS];
    for (int at = 0; at < chosen->count; at++) {
        int one = chosen->term[at];
        for (int before = 0; before < at; before++) {
            double left = moments->product[one][chosen->term[before]];
            for (int k = 0; k < before; k++)
                left -= lower[at][k] * lower[before][k];
            lower[at][before] = left / lower[before][before];
        }
        double pivot = moments->product[one][one], value = moments->target[one];
        for (int k = 0; k < at; k++) {
            pivot -= lower[at][k] * lower[at][k];
            value -= lower[at][k] * right[k];
        }
        if (!(pivot > LEAST_PIVOT * moments->product[one][one]))
            return false;
        lower[at][at] = sqrt(pivot);
        right[at] = value / lower[at][at];
    }
    for (int term = 0; term < moments->terms; term++)
        solution[term] = 0.0;
    for (int at = chosen->count - 1; at >= 0; at--) {
        double value = right[at];
        for (int k = at + 1; k < chosen->count; k++)
            value -= lower[k][at] * solution[chosen->term[k]];
        solution[chosen->term[at]] = value / lower[at][at];
    }
    return true;
}

/* Go from `found` towards the solution until a first coefficient is zero, which is no candidate any more. */
static bool step(const Moments *moments, Chosen *candidates, double *found, const double *solution) {
    double share = INFINITY;
    int first = -1;
    for (int i = 0; i < candidates->count; i++) {
        int one = candidates->term[i];
        if (solution[one] <= 0.0 && found[one] / (found[one] - solution[one]) < share) {
            share = found[one] / (found[one] - solution[one]);
            first = one;
        }
    }
    if (first < 0)
        return false;
    for (int i = 0; i < candidates->count; i++) {
        int one = candidates->term[i];
        found[one] = found[one] + share * (solution[one] - found[one]);
    }
    found[first] = 0.0;
    int kept = 0;
    for (int i = 0; i < candidates->count; i++) {
        int one = candidates->term[i];
        if (found[one] > 0.0)
            candidates->term[kept++] = one;
    }
    candidates->count = kept;
    return true;
}

static bool any_at_zero(const Chosen *candidates, const double *solution) {
    for (int i = 0; i < candidates->count; i++)
        if (solution[candidates->term[i]] <= 0.0)
            return true;
    return false;
}

static bool are_finite(const Moments *moments) {
    bool finite = true;
    for (int one = 0; one < moments->terms; one++) {
        finite = finite && isfinite(moments->target[one]);
        for (int other = 0; other <= one; other++)
            finite = finite && isfinite(moments->product[one][other]);
    }
    return finite;
}

/* The coefficients ≥ 0 that leave least; false if rounding is in the way. */
static bool nonnegative(const Moments *moments, double *found) {
    double solution[TERMS];
    Chosen positive = {0}, refused = {0};
    if (!are_finite(moments))
        return false;
    memset(found, 0, TERMS * sizeof(double));
    for (int steps = 0; steps < MOST_STEPS; steps++) {
        int added = steepest(moments, found, &positive, &refused);
        if (added < 0) {
            bool finite = true;
            for (int term = 0; term < moments->terms; term++)
                finite = finite && isfinite(found[term]);
            return finite;
        }
        Chosen candidates = positive;
        insert(&candidates, added);
        if (!solve(moments, &candidates, solution))
            return false;
        if (solution[added] <= 0.0) { /* by rounding alone */
            insert(&refused, added);
            continue;
        }
        while (any_at_zero(&candidates, solution))
            if (!step(moments, &candidates, found, solution) || !solve(moments, &candidates, solution))
                return false;
        memcpy(found, solution, sizeof solution);
        positive = candidates;
        refused.count = 0;
    }
    return false;
}

/* Of a split its row among those in which such a type trains. */
static int row_of(const Type *type, const Cell *cell) {
    return (int)(type->uses_ps ? (cell->ps - 1) * (SIDE - 1) + cell->workers - 1 : cell->workers - 1);
}

/* The speed at which a cell's samples were trained, its precision, and of which row it is. */
typedef struct {
    int row;
    double relative, precision;
} Seen;

static int find_seen(const Type *type, Seen *seen) {
    double largest = exp(LARGEST_LOG_SPEED);
    int count = 0;
    for (int64_t i = 0; i < type->cells; i++) {
        const Cell *cell = &type->cell[i];
        if (!(cell->samples > 0.0))
            continue;
        int row = row_of(type, cell);
        double time = fmin(fmax(cell->seconds / cell->samples, 1.0 / largest), largest);
        double precision = 1.0 / (SHAPE_ERROR * SHAPE_ERROR + NOISE * NOISE / (double)cell->count);
        seen[count++] = (Seen){row, time / type->expected_times[row], precision};
    }
    return count;
}

/* Seconds per sample of the type, by which everything is counted. */
static double unit_of(const Seen *seen, int count) {
    double logs = 0.0, weights = 0.0;
    for (int i = 0; i < count; i++) {
        logs += seen[i].precision * log(seen[i].relative);
        weights += seen[i].precision;
    }
    return exp(logs / weights);
}

static void add_up(const Type *type, const Seen *seen, int count, double unit, Moments *moments) {
    int terms = moments->terms;
    for (int i = 0; i < count; i++) {
        double time = fmin(fmax(seen[i].relative, unit / FARTHEST), unit * FARTHEST) * type->expected_times[seen[i].row];
        double factor = unit / time, row[TERMS], weighted[TERMS];
        for (int term = 0; term < terms; term++) {
            row[term] = type->features[seen[i].row * terms + term] * factor;
            weighted[term] = row[term] * seen[i].precision;
        }
        for (int one = 0; one < terms; one++) {
            moments->target[one] = i ? moments->target[one] + weighted[one] : weighted[one];
            for (int other = 0; other <= one; other++) {
                double product = row[one] * weighted[other];
                moments->product[one][other] = i ? moments->product[one][other] + product : product;
            }
        }
    }
    for (int one = 0; one < terms; one++) {
        moments->target[one] += type->prior_target[one];
        for (int other = 0; other <= one; other++)
            moments->product[one][other] += type->prior_products[one * terms + other];
    }
}

/* Speeds in every split in which such a type trains. */
static void find_speeds(Type *type) {
    int rows = type->uses_ps ? (SIDE - 1) * (SIDE - 1) : MOST_WORKERS, terms = (int)type->terms;
    for (int row = 0; row < rows; row++) {
        double time = type->features[row * terms] * type->coefficients[0];
        for (int term = 1; term < terms; term++)
            time = time + type->features[row * terms + term] * type->coefficients[term];
        int cell = type->uses_ps ? cell_of(row / (SIDE - 1) + 1, row % (SIDE - 1) + 1) : row + 1;
        type->fitted[cell] = 1.0 / time;
    }
}

/* Fit a type's speeds to its cells; false if rounding is in the way. */
bool fit_type(Type *type) {
    Seen seen[CELLS];
    Moments moments = {.terms = (int)type->terms};
    int count = find_seen(type, seen);
    if (!count)
        memcpy(type->coefficients, type->unseen_coefficients, sizeof(double) * (size_t)type->terms);
    else {
        double unit = unit_of(seen, count), found[TERMS];
        add_up(type, seen, count, unit, &moments);
        if (!nonnegative(&moments, found))
            return false;
        for (int term = 0; term < moments.terms; term++)
            type->coefficients[term] = found[term] * unit;
    }
    find_speeds(type);
    return true;
}
