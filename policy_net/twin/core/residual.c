/* The residual: one small network over all jobs at once, and its inputs.

   Follows policy_net.set_policy.residual. */

#include "twin.h"

#include <math.h>
#include <string.h>

#define LARGEST_SHARE 100.0

/* Sort lengths, each with its job, in place: a merge from below, as a library's sort calls back for every comparison. */
static Length *sorted(Length *from, Length *to, int count) {
    for (int width = 1; width < count; width *= 2) {
        for (int low = 0; low < count; low += 2 * width) {
            int middle = low + width < count ? low + width : count, high = low + 2 * width < count ? low + 2 * width : count;
            int left = low, right = middle;
            for (int at = low; at < high; at++)
                to[at] = left < middle && (right >= high || from[left].value <= from[right].value) ? from[left++] : from[right++];
        }
        Length *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* The rank of every job's length, from -0.5 to 0.5; equal ones share theirs. */
static void rank(Twin *twin, int count) {
    const Length *length = sorted(twin->length, twin->length + count, count);
    for (int first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && length[next].value == length[first].value;)
            next++;
        for (int at = first; at < next; at++)
            twin->inputs[length[at].at * OWN_FEATURES + 8] = (double)(first + next) / (double)(2 * count) - 0.5;
    }
}

static double share_of(double part, double whole) { return part == 0.0 ? 0.0 : whole == 0.0 ? INFINITY : part / whole; }

/* The dominant share of a cluster that a job would use alone; 0 of a job that cannot train. */
double desired_share(const Twin *twin, int index) {
    const Job *spec = &twin->in->job[index];
    const Table *table = twin->job[index].table;
    if (table->best_speed <= 0.0)
        return 0.0;
    double cpu = (double)(spec->worker_cpu * table->best.workers + spec->ps_cpu * table->best.ps);
    double gpu = (double)(spec->worker_gpu * table->best.workers + spec->ps_gpu * table->best.ps);
    return fmin(fmax(share_of(cpu, (double)twin->total_cpu), share_of(gpu, (double)twin->total_gpu)), LARGEST_SHARE);
}

static void own_features(const Twin *twin, int index, double *row) {
    const Case *in = twin->in;
    const Job *spec = &in->job[index];
    const State *job = &twin->job[index];
    const Table *table = job->table;
    memset(row, 0, sizeof(double) * OWN_FEATURES);
    if (table->best_speed <= 0.0)
        return;
    Split best = table->best;
    double slots_left = remaining_samples(twin, job, index) / table->best_speed / in->slot_seconds;
    row[0] = row[1] = log(fmax(slots_left, 1e-3)) / 2.0;
    row[2] = spec->work_known ? 0.0 : 1.0;
    row[3] = in->learns ? twin->belief[spec->type].sd[cell_of(best.ps, best.workers)] : 0.0;
    row[4] = table->slowest_speed > 0 ? log(table->best_speed / table->slowest_speed) / 2.0 : 0.0;
    row[5] = desired_share(twin, index);
    row[6] = log1p(job->run_seconds / (slots_left * in->slot_seconds)) / 2.0;
    row[7] = (double)(job->running.workers + job->running.ps) / (double)(best.workers + best.ps);
}

static void forward(const Twin *twin, const double *inputs, double *outputs) {
    const Case *in = twin->in;
    const double *weight = in->parameter + RESIDUAL, *entering = inputs;
    double *leaving = twin->hidden;
    for (int64_t layer = 0; layer < in->layers; layer++) {
        int64_t width = in->widths[layer], next = in->widths[layer + 1];
        bool last = layer + 1 == in->layers;
        double *to = last ? outputs : leaving;
        const double *bias = weight + next * width;
        for (int64_t out = 0; out < next; out++) {
            const double *row = weight + out * width;
            double part[4] = {0}; /* four sums, so that no addition waits for the one before it */
            int64_t at = 0;
            for (; at + 4 <= width; at += 4)
                for (int i = 0; i < 4; i++)
                    part[i] += entering[at + i] * row[at + i];
            for (; at < width; at++)
                part[0] += entering[at] * row[at];
            double sum = ((part[0] + part[1]) + (part[2] + part[3])) + bias[out];
            to[out] = last || sum > 0.0 ? sum : 0.0;
        }
        weight = bias + next;
        entering = to;
        leaving = leaving == twin->hidden ? twin->hidden + WIDEST : twin->hidden;
    }
}

/* Priority and steepness of every present job. */
void residual_tilts(Twin *twin) {
    const Case *in = twin->in;
    int count = twin->presents;
    double demand = 0.0, mean = 0.0, uncertainty = 0.0, bound = in->parameter[BOUND];
    double loudness = in->nodes == 1 ? in->parameter[LOUDNESS_ON_ONE_MACHINE] : 1.0;
    for (int at = 0; at < count; at++) {
        double *row = twin->inputs + at * OWN_FEATURES;
        own_features(twin, twin->present[at], row);
        demand += row[5];
        mean += row[0];
        uncertainty += row[3];
        twin->length[at] = (Length){row[0], at};
    }
    mean /= count;
    rank(twin, count);
    double contention = fmin(fmax(log(fmax(demand, 1e-3)) / 2.0, -1.5), 1.5);
    for (int at = 0; at < count; at++) {
        State *job = &twin->job[twin->present[at]];
        double *own = twin->inputs + at * OWN_FEATURES, row[INPUTS], outputs[2];
        own[0] -= mean;
        own[5] = log(fmax(own[5], 1e-4)) / 4.0 + 0.5;
        for (int i = 0; i < OWN_FEATURES; i++)
            row[i] = own[i], row[OWN_FEATURES + i] = own[i] * contention;
        row[2 * OWN_FEATURES] = contention;
        row[2 * OWN_FEATURES + 1] = contention * contention;
        row[2 * OWN_FEATURES + 2] = uncertainty / count;
        forward(twin, row, outputs);
        job->priority = loudness * (bound * tanh(outputs[0] / bound));
        job->steepness = loudness * (bound * tanh(outputs[1] / bound));
    }
}
