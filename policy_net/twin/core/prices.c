/* Prices that the planner counts in, which follow from how full the cluster is.

   Follows policy_net.set_policy.steps. */

#include "twin.h"

#include <math.h>

#define USUAL_EXPONENT 0.25
#define LARGEST_CONTENTION 1.5
#define CONTENTION_STEP 0.125
#define LARGEST_LOG_CHANGE 3.0

static double factor(const Twin *twin, int term, double contention) {
    const double *parameter = twin->in->parameter;
    double change = parameter[term] + parameter[term + 1] * contention;
    return exp(fmin(fmax(change, -LARGEST_LOG_CHANGE), LARGEST_LOG_CHANGE));
}

/* Half the log of what all jobs could use over what there is, in steps. */
static double contention_of(const Twin *twin) {
    double demand = 0.0;
    for (int at = 0; at < twin->presents; at++)
        demand += desired_share(twin, twin->present[at]);
    double contention = log(fmax(demand, 1e-3)) / 2.0;
    contention = fmin(fmax(contention, -LARGEST_CONTENTION), LARGEST_CONTENTION);
    return floor(contention / CONTENTION_STEP + 0.5) * CONTENTION_STEP;
}

/* The usual prices, once a run. */
void prices_open(Twin *twin) {
    twin->speed_exponent = twin->work_exponent = USUAL_EXPONENT;
    twin->ps_price = 1.0;
    for (int term = SPEED_EXPONENT; term <= PS_PRICE + 1; term++)
        twin->priced = twin->priced || twin->in->parameter[term] != 0.0;
}

/* The prices of a decision, once the jobs' tables are found; says whether these are to be found anew. */
bool prices_set(Twin *twin) {
    if (!twin->priced)
        return false;
    double contention = contention_of(twin);
    if (twin->contention_known && contention == twin->contention)
        return false;
    twin->contention_known = true;
    twin->contention = contention;
    twin->speed_exponent = USUAL_EXPONENT * factor(twin, SPEED_EXPONENT, contention);
    twin->work_exponent = USUAL_EXPONENT * factor(twin, WORK_EXPONENT, contention);
    twin->ps_price = factor(twin, PS_PRICE, contention);
    for (int64_t type = 0; type < twin->in->types; type++)
        if (twin->belief[type].version)
            belief_count(twin, (int)type);
    return true;
}
