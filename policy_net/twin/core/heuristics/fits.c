/* Speeds that heuristics plan on: given, or fitted to what was seen of a type.

   Follows policy_net.throughput.beliefs and type_belief. Gaussian processes are those of `set`; another fit is in
   Optimus's form, and where rounding is in its way the reference's own, `Case.fit`. */

#include "heuristics.h"

#include <string.h>

static void use(Belief *belief, const double *speed) {
    memcpy(belief->speed, speed, sizeof belief->speed);
    belief->version++;
}

/* Let the cells of a type in which it does nothing have no speed. */
static void use_fitted(const Type *type, Belief *belief) {
    use(belief, type->fitted);
    for (int64_t i = 0; i < type->cells; i++)
        if (is_dead(&type->cell[i]))
            belief->speed[cell_of((int)type->cell[i].ps, (int)type->cell[i].workers)] = 0.0;
}

/* Bring the speeds of a type, `belief[type].speed`, up to date before a decision; false if the fit failed. */
bool fits_refresh(Twin *twin, int index) {
    Type *type = &twin->in->type[index];
    Belief *belief = &twin->belief[index];
    if (twin->in->fits && !twin->in->fit)
        return belief_refresh(twin, index);
    if (!twin->in->fits || !type->known) {
        if (!belief->version)
            use(belief, twin->in->fits ? type->hoped : type->given);
        return true;
    }
    if (!belief->fitted) {
        belief->count = 0;
        for (int64_t i = 0; i < type->cells; i++)
            belief->count += type->cell[i].count;
        belief->fitted = belief->scale = true;
        if (belief->count < type->refit_at)
            use_fitted(type, belief);
    }
    if (belief->count < type->refit_at)
        return true;
    if (!fit_type(type) && twin->in->fit(index))
        return false;
    int64_t growth = (int64_t)(twin->in->refit_growth * (double)belief->count);
    type->refit_at = belief->count + (growth > 1 ? growth : 1);
    use_fitted(type, belief);
    return true;
}
