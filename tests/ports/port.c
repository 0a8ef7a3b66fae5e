/* MiniMind's operators and sampling stages in C, spoken to in JSON lines (reference_weights/vectors/PROTOCOL.md).
 *
 *     cc -O2 -o port port.c -lm && npminimind conform -- ./port
 *
 * Written from the formulas, not from npminimind's code. `./port --bug ID` plants one of the known mistakes, so that
 * the tests can see whether the golden vectors catch it. Everything is computed in double.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *bug_id = "";
static int bug(const char *id) { return strcmp(bug_id, id) == 0; }

/* ---- memory of one request, freed together ------------------------------------------------------------------ */

typedef struct Block { struct Block *next; } Block;
static Block *blocks;

static void *take(size_t bytes) {
    Block *block = calloc(1, sizeof(Block) + bytes);
    if (!block) { fprintf(stderr, "out of memory\n"); exit(1); }
    block->next = blocks;
    blocks = block;
    return block + 1;
}

static void free_all(void) {
    while (blocks) { Block *next = blocks->next; free(blocks); blocks = next; }
}

static jmp_buf refusal;
static char message[200];

static void refuse(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    longjmp(refusal, 1);
}

/* ---- JSON in -------------------------------------------------------------------------------------------------- */

typedef enum { NONE, TRUTH, NUMBER, TEXT, LIST, OBJECT } Kind;
typedef struct Value {
    Kind kind;
    double number;
    char *text;            /* of TEXT, and the key of a member of an OBJECT */
    char *key;
    struct Value *first, *next;
} Value;

static const char *at;

static void skip_blanks(void) { while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') at++; }

static char *parse_text(void) {
    const char *start = ++at;
    while (*at && *at != '"') at += (*at == '\\' && at[1]) ? 2 : 1;
    char *text = take(at - start + 1);
    memcpy(text, start, at - start);
    if (*at) at++;
    return text;
}

static Value *parse(void) {
    Value *value = take(sizeof *value);
    skip_blanks();
    if (*at == '"') {
        value->kind = TEXT;
        value->text = parse_text();
    } else if (*at == '[' || *at == '{') {
        int object = *at == '{';
        char close = object ? '}' : ']';
        Value **last = &value->first;
        value->kind = object ? OBJECT : LIST;
        at++;
        for (skip_blanks(); *at && *at != close; skip_blanks()) {
            char *key = NULL;
            if (object) { key = parse_text(); skip_blanks(); at++; }
            *last = parse();
            (*last)->key = key;
            last = &(*last)->next;
            skip_blanks();
            if (*at == ',') at++;
        }
        if (*at) at++;
    } else if (*at == 't' || *at == 'f' || *at == 'n') {
        value->kind = *at == 'n' ? NONE : TRUTH;
        value->number = *at == 't';
        while (*at >= 'a' && *at <= 'z') at++;
    } else {
        char *end;
        value->kind = NUMBER;
        value->number = strtod(at, &end);
        if (end == at) refuse("this is no JSON");
        at = end;
    }
    return value;
}

static Value *member(Value *object, const char *key) {
    for (Value *v = object ? object->first : NULL; v; v = v->next)
        if (v->key && strcmp(v->key, key) == 0) return v->kind == NONE ? NULL : v;
    return NULL;
}

static double number_of(Value *value) {
    if (!value) refuse("a number is missing");
    if (value->kind == TEXT) {
        if (strcmp(value->text, "inf") == 0) return INFINITY;
        if (strcmp(value->text, "-inf") == 0) return -INFINITY;
        if (strcmp(value->text, "nan") == 0) return NAN;
    }
    if (value->kind != NUMBER && value->kind != TRUTH) refuse("this is no number");
    return value->number;
}

/* ---- arrays ------------------------------------------------------------------------------------------------- */

typedef struct { int dims; long shape[8], size; double *data; } Array;

static Array array_like(int dims, const long *shape) {
    Array a = {dims, {0}, 1, NULL};
    for (int i = 0; i < dims; i++) a.size *= a.shape[i] = shape[i];
    a.data = take((a.size + 1) * sizeof(double));
    return a;
}
#define ARRAY(...) array_like(sizeof((long[]){__VA_ARGS__}) / sizeof(long), (long[]){__VA_ARGS__})

static void collect(Value *value, Array *into, long *count) {
    if (value->kind == LIST) {
        for (Value *v = value->first; v; v = v->next) collect(v, into, count);
    } else {
        if (*count >= into->size) refuse("more numbers than the shape says");
        into->data[(*count)++] = number_of(value);
    }
}

static Array array_of(Value *value) {
    long shape[8], count = 0;
    int dims = 0;
    if (!member(value, "data")) refuse("an array is missing");
    for (Value *v = member(value, "shape")->first; v && dims < 8; v = v->next) shape[dims++] = (long)v->number;
    Array a = array_like(dims, shape);
    collect(member(value, "data"), &a, &count);
    if (count != a.size) refuse("the shape says %ld numbers, there are %ld", a.size, count);
    return a;
}

static Value *args;
static Array array_arg(const char *name) { return array_of(member(args, name)); }
static double number_arg(const char *name) { return number_of(member(args, name)); }
static long last(Array a) { return a.shape[a.dims - 1]; }
static long rows(Array a) { return last(a) ? a.size / last(a) : 0; }

static void put_number(double x, int first) {
    if (!first) putchar(',');
    if (isnan(x)) printf("\"nan\"");
    else if (isinf(x)) printf(x > 0 ? "\"inf\"" : "\"-inf\"");
    else printf("%.17g", x);
}

static void put(Array a, const char *dtype) {
    printf("{\"shape\":[");
    for (int i = 0; i < a.dims; i++) printf(i ? ",%ld" : "%ld", a.shape[i]);
    printf("],\"dtype\":\"%s\",\"data\":[", dtype);
    for (long i = 0; i < a.size; i++) put_number(a.data[i], i == 0);
    printf("]}");
}

static void begin(void) { printf("\"out\":"); }
static void put_out(Array a) { begin(); put(a, "float64"); }

/* ---- the parts of the model --------------------------------------------------------------------------------- */

static void rms_norm(void) {
    Array x = array_arg("x"), w = array_arg("weight"), y = array_like(x.dims, x.shape);
    double eps = number_arg("eps");
    long n = last(x);
    if (w.size != n) refuse("weight has %ld numbers, x has %ld features", w.size, n);
    if (bug("norm-eps")) eps = eps == 1e-5 ? 1e-6 : 1e-5;
    if (bug("norm-eps-missing")) eps = 0;
    for (long r = 0; r < rows(x); r++) {
        double *in = x.data + r * n, mean = 0, square = 0;
        if (bug("norm-mean-subtracted")) for (long i = 0; i < n; i++) mean += in[i] / n;
        for (long i = 0; i < n; i++) square += (in[i] - mean) * (in[i] - mean);
        if (!bug("norm-sum-not-mean")) square /= bug("norm-unbiased") ? n - 1 : n;
        double length = bug("norm-eps-outside-root") ? sqrt(square) + eps : sqrt(square + eps);
        if (bug("norm-without-root")) length = square + eps;
        for (long i = 0; i < n; i++) {
            double weight = bug("norm-weight-missing") ? 1 : bug("norm-weight-plus-one") ? 1 + w.data[i] : w.data[i];
            y.data[r * n + i] = weight * ((in[i] - mean) / length);
        }
    }
    put_out(y);
}

static double frequency(long i, long d, double theta, Value *yarn) {
    double exponent = bug("rope-exponent-doubled") ? 4.0 : bug("rope-exponent-without-two") ? 1.0 : 2.0;
    double f = pow(theta, -exponent * i / d);
    int on = yarn != NULL;
    double factor = 16, fast = 32, slow = 1, trained = 2048;
    if (on) {
        factor = number_of(member(yarn, "factor"));
        fast = number_of(member(yarn, "beta_fast"));
        slow = number_of(member(yarn, "beta_slow"));
        trained = number_of(member(yarn, "original_max_position_embeddings"));
    }
    if (bug("yarn-factor-4")) factor = 4;
    if ((!on && !bug("yarn-always")) || bug("yarn-off")) return f;
    if (bug("yarn-all-pairs")) return f / factor;
    double low = floor(d * log(trained / (fast * 2 * M_PI)) / (2 * log(theta)));
    double high = ceil(d * log(trained / (slow * 2 * M_PI)) / (2 * log(theta)));
    low = fmax(low, 0);
    high = fmin(high, d / 2 - 1);
    double ramp = fmin(fmax((i - low) / fmax(high - low, 0.001), 0), 1);
    return f * (1 - ramp + ramp / factor);
}

static void rope_tables(void) {
    long d = (long)number_arg("head_dim"), length = (long)number_arg("length");
    long start = member(args, "start") ? (long)number_arg("start") : 0;
    double theta = number_arg("theta"), factor = 1;
    Value *yarn = member(args, "scaling");
    if (d < 2 || d % 2) refuse("head_dim must be even");
    if (bug("rope-theta")) theta = theta == 1e4 ? 1e6 : 1e4;
    if (bug("rope-positions-restart")) start = 0;
    if (bug("rope-positions-late") && start > 0) start--;
    if (bug("rope-positions-from-one")) start++;
    if (yarn && !bug("yarn-off")) factor = number_of(member(yarn, "attention_factor"));
    if (yarn && bug("yarn-attention-factor")) factor = 0.1 * log(16) + 1;
    if (bug("yarn-all-pairs")) factor = 1;
    Array c = ARRAY(length, d), s = ARRAY(length, d);
    for (long p = 0; p < length; p++)
        for (long i = 0; i < d; i++) {
            double angle = (start + p) * frequency(i % (d / 2), d, theta, yarn);
            c.data[p * d + i] = cos(angle) * factor;
            s.data[p * d + i] = sin(angle) * factor;
        }
    begin();
    printf("{\"cos\":");
    put(c, "float64");
    printf(",\"sin\":");
    put(s, "float64");
    printf("}");
}

static Array half_rotated(Array x) {
    Array y = array_like(x.dims, x.shape);
    long d = last(x), half = d / 2;
    for (long r = 0; r < rows(x); r++)
        for (long i = 0; i < half; i++) {
            double *in = x.data + r * d, *out = y.data + r * d;
            if (bug("rope-neighbours-half-tables")) {
                out[2 * i] = -in[2 * i + 1];
                out[2 * i + 1] = in[2 * i];
            } else {
                double sign = bug("rope-sign") ? -1 : 1;
                out[i] = -sign * in[half + i];
                out[half + i] = sign * in[i];
            }
        }
    return y;
}

static void rotate_half(void) { put_out(half_rotated(array_arg("x"))); }

static Array turned(Array x, Array c, Array s) {
    Array half = half_rotated(x), y = array_like(x.dims, x.shape);
    long d = x.shape[3], heads = x.shape[2], length = x.shape[1];
    for (long i = 0; i < x.size; i++) {
        long position = i / (heads * d) % length, feature = i % d, entry = position * d + feature;
        double other = half.data[i];
        if (bug("rope-neighbours")) {
            other = feature % 2 ? x.data[i - 1] : -x.data[i + 1];
            entry = position * d + feature / 2;
        }
        y.data[i] = x.data[i] * c.data[entry] + other * s.data[entry];
    }
    return y;
}

static void apply_rope(void) {
    Array q = array_arg("q"), k = array_arg("k"), c = array_arg("cos"), s = array_arg("sin");
    if (q.shape[1] != c.shape[0] || q.shape[3] != c.shape[1]) refuse("the tables do not fit q");
    Array q_turned = turned(q, c, s), k_turned = turned(k, c, s);
    if (bug("rope-missing") || bug("rope-k-only")) q_turned = q;
    if (bug("rope-missing") || bug("rope-q-only")) k_turned = k;
    if (bug("rope-k-twice")) k_turned = turned(k_turned, c, s);
    begin();
    printf("{\"q\":");
    put(q_turned, "float64");
    printf(",\"k\":");
    put(k_turned, "float64");
    printf("}");
}

static long head_of(long head, long n_rep, long n_kv) { return bug("heads-tiled") ? head % n_kv : head / n_rep; }

static void repeat_kv(void) {
    Array x = array_arg("x");
    long b = x.shape[0], t = x.shape[1], k = x.shape[2], d = x.shape[3], n_rep = (long)number_arg("n_rep");
    Array y = ARRAY(b, t, k * n_rep, d);
    for (long row = 0; row < b * t; row++)
        for (long head = 0; head < k * n_rep; head++)
            for (long i = 0; i < d; i++)
                y.data[(row * k * n_rep + head) * d + i] = x.data[(row * k + head_of(head, n_rep, k)) * d + i];
    put_out(y);
}

static int hidden(long query, long key, long past) { /* query counts the new tokens, key all */
    if (bug("causal-missing")) return 0;
    if (bug("causal-shifted")) return key > past + query + 1;
    if (bug("causal-excludes-self")) return key >= past + query && key > 0;
    if (bug("causal-square-only")) return key > query;
    return key > past + query;
}

static void causal_mask(void) {
    long s = (long)number_arg("s"), t = (long)number_arg("t");
    if (s < 0 || s > t) refuse("s must lie between 0 and t");
    Array mask = ARRAY(s, t);
    for (long i = 0; i < s * t; i++) mask.data[i] = hidden(i / t, i % t, t - s) ? -INFINITY : 0;
    put_out(mask);
}

static void softmax_over(double *x, long n, long stride) {
    double greatest = -INFINITY, sum = 0;
    for (long i = 0; i < n; i++) greatest = fmax(greatest, x[i * stride]);
    for (long i = 0; i < n; i++) sum += x[i * stride] = exp(x[i * stride] - greatest);
    for (long i = 0; i < n; i++) x[i * stride] /= sum;
}

static void softmax(void) {
    Array x = array_arg("x");
    int axis = member(args, "axis") ? (int)number_arg("axis") : -1;
    if (axis < 0) axis += x.dims;
    long stride = 1, n = x.shape[axis];
    for (int i = axis + 1; i < x.dims; i++) stride *= x.shape[i];
    for (long i = 0; i < x.size / n; i++) softmax_over(x.data + i / stride * stride * n + i % stride, n, stride);
    put_out(x);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double gelu_of(double x) {
    if (bug("gelu-silu")) return x * sigmoid(x);
    if (bug("gelu-tanh")) return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double silu_of(double x) {
    if (bug("silu-gelu")) return 0.5 * x * (1 + erf(x / sqrt(2)));
    if (bug("silu-relu")) return x > 0 ? x : 0;
    if (bug("silu-sigmoid")) return sigmoid(x);
    if (bug("silu-quick-gelu")) return x * sigmoid(1.702 * x);
    return x / (1 + exp(-x));
}

static void each(double (*function)(double)) {
    Array x = array_arg("x");
    for (long i = 0; i < x.size; i++) x.data[i] = function(x.data[i]);
    put_out(x);
}
static void silu(void) { each(silu_of); }
static void gelu(void) { each(gelu_of); }

static void attention(void) {
    Array q = array_arg("q"), k = array_arg("k"), v = array_arg("v");
    Value *padding = member(args, "attention_mask");
    long b = q.shape[0], s = q.shape[1], n = q.shape[2], d = q.shape[3], t = k.shape[1], n_kv = k.shape[2];
    if (n % n_kv) refuse("%ld query heads, %ld key heads", n, n_kv);
    Array mask = {0};
    if (padding) {
        mask = array_of(padding);
        if (mask.size != b * t) refuse("attention_mask must be [B, T]");
    }
    double scale = sqrt(d);
    if (bug("attention-scale-missing")) scale = 1;
    if (bug("attention-scale-hidden")) scale = sqrt(n * d);
    if (bug("attention-scale-twice")) scale = d;
    Array p = ARRAY(b, n, s, t), context = ARRAY(b, s, n * d);
    long past = t - s, from = bug("cache-ignored") ? past : 0; /* keys before `from` are not there */
    for (long i = 0; i < p.size; i++) {
        long key = i % t, query = i / t % s, head = i / (t * s) % n, row = i / (t * s * n), dot_at = head_of(head, n / n_kv, n_kv);
        double score = 0;
        for (long j = 0; j < d; j++)
            score += q.data[((row * s + query) * n + head) * d + j] * k.data[((row * t + key) * n_kv + dot_at) * d + j];
        p.data[i] = score / scale;
        if (hidden(query, key, past) || key < from) p.data[i] = -INFINITY;
        if (padding && !bug("padding-ignored") && mask.data[row * t + key] == 0) p.data[i] += -1e9;
    }
    if (bug("softmax-over-queries"))
        for (long i = 0; i < b * n * t; i++) softmax_over(p.data + i / t * s * t + i % t, s, t);
    else if (bug("softmax-over-heads"))
        for (long i = 0; i < b * s * t; i++) softmax_over(p.data + i / (s * t) * n * s * t + i % (s * t), n, s * t);
    else
        for (long i = 0; i < b * n * s; i++) softmax_over(p.data + i * t, t, 1);
    for (long i = 0; i < context.size; i++) {
        long j = i % d, head = i / d % n, query = i / (d * n) % s, row = i / (d * n * s);
        long to = bug("heads-not-transposed") ? ((row * n + head) * s + query) * d + j : i;
        for (long key = from; key < t; key++)
            context.data[to] += p.data[((row * n + head) * s + query) * t + key] *
                                v.data[((row * t + key) * n_kv + head_of(head, n / n_kv, n_kv)) * d + j];
    }
    put_out(context);
}

static double act(double x) {
    Value *name = member(args, "act");
    return name && strcmp(name->text, "gelu") == 0 ? gelu_of(x) : silu_of(x);
}

/* y += weight * swiglu(x), x and y one token */
static void swiglu_of(const double *x, Array gate, Array up, Array down, double weight, double *y) {
    long h = gate.shape[1], inner = gate.shape[0];
    for (long i = 0; i < inner; i++) {
        double g = 0, u = 0, between;
        for (long j = 0; j < h; j++) {
            g += gate.data[i * h + j] * x[j];
            u += up.data[i * h + j] * x[j];
        }
        if (bug("gate-up-swapped")) between = act(u) * g;
        else if (bug("up-missing")) between = act(g);
        else if (bug("activation-last")) between = act(g * u);
        else between = act(g) * u;
        for (long j = 0; j < h; j++) y[j] += weight * down.data[j * inner + i] * between;
    }
}

static void swiglu(void) {
    Array x = array_arg("x"), gate = array_arg("gate_proj"), up = array_arg("up_proj"), down = array_arg("down_proj");
    Array y = array_like(x.dims, x.shape);
    for (long r = 0; r < rows(x); r++) swiglu_of(x.data + r * last(x), gate, up, down, 1, y.data + r * last(x));
    put_out(y);
}

static void moe(void) {
    Array x = array_arg("x"), gate = array_arg("gate"), y = array_like(x.dims, x.shape), expert[64][3];
    long h = last(x), e = 0, k = (long)number_arg("num_experts_per_tok");
    int renormalise = number_arg("norm_topk_prob") != 0;
    for (Value *v = member(args, "experts")->first; v && e < 64; v = v->next, e++) {
        Value *w = v->first;
        for (int i = 0; i < 3; i++, w = w->next) expert[e][i] = array_of(w);
    }
    if (k < 1 || k > e || gate.shape[0] != e) refuse("num_experts_per_tok must be 1 to %ld", e);
    if (bug("router-not-renormalised")) renormalise = 0;
    if (bug("router-renormalised")) renormalise = 1;
    if (bug("experts-first-choice-only")) k = 1;
    for (long r = 0; r < rows(x); r++) {
        double p[64], weight[64], sum = 0;
        long chosen[64];
        for (long i = 0; i < e; i++) {
            p[i] = 0;
            for (long j = 0; j < h; j++) p[i] += gate.data[i * h + j] * x.data[r * h + j];
            if (bug("router-sigmoid")) p[i] = sigmoid(p[i]);
        }
        if (!bug("router-sigmoid")) softmax_over(p, e, 1);
        for (long c = 0; c < k; c++) { /* the greatest that is left; of equals, the lowest id */
            long best = -1;
            for (long i = 0; i < e; i++) if (p[i] >= 0 && (best < 0 || p[i] > p[best])) best = i;
            chosen[c] = best;
            sum += weight[c] = p[best];
            p[best] = -1;
        }
        for (long c = 0; c < k; c++) {
            double w = bug("router-weights-reversed") ? weight[k - 1 - c] : weight[c];
            if (renormalise) w /= sum + 1e-20;
            if (bug("router-weights-ignored")) w = 1;
            Array *a = expert[bug("experts-shifted") ? (chosen[c] + 1) % e : chosen[c]];
            swiglu_of(x.data + r * h, a[0], a[1], a[2], w, y.data + r * h);
        }
    }
    put_out(y);
}

/* ---- the stages of sampling --------------------------------------------------------------------------------- */

static void apply_temperature(void) {
    Array x = array_arg("logits");
    double t = number_arg("temperature");
    if (!(t >= 0)) refuse("temperature must be 0 or more");
    if (t == 0 || isinf(t)) refuse("temperature must be positive and finite; use greedy for its limit 0");
    if (bug("temperature-ignored")) t = 1;
    for (long i = 0; i < x.size; i++) x.data[i] = bug("temperature-multiplies") ? x.data[i] * t : x.data[i] / t;
    put_out(x);
}

static void apply_repetition_penalty(void) {
    Array x = array_arg("logits"), ids = array_arg("input_ids"), y = array_like(x.dims, x.shape);
    double p = number_arg("penalty");
    long v = last(x), length = last(ids);
    if (!(p > 0) || isinf(p)) refuse("the penalty must be positive and finite");
    memcpy(y.data, x.data, x.size * sizeof(double));
    for (long r = 0; r < rows(x); r++)
        for (long i = 0; i < length; i++) {
            double id = ids.data[r * length + i];
            if (id < 0 || id >= v) refuse("id %g is outside the vocabulary", id);
            double *to = y.data + r * v + (long)id, s = x.data[r * v + (long)id];
            if (bug("penalty-counts-multiplicity")) s = *to;
            if (bug("penalty-divides-negatives")) *to = s / p;
            else if (bug("penalty-inverted")) *to = s > 0 ? s * p : s / p;
            else if (bug("penalty-subtracts")) *to = s - p;
            else if (!bug("penalty-ignored")) *to = s > 0 ? s / p : s * p;
        }
    put_out(y);
}

static int downwards(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static double kth_greatest(const double *x, long v, long k) {
    double *copy = take(v * sizeof(double));
    memcpy(copy, x, v * sizeof(double));
    qsort(copy, v, sizeof(double), downwards);
    return copy[k - 1];
}

static void top_k_threshold(void) {
    Array x = array_arg("logits");
    long v = last(x), k = (long)number_arg("k");
    if (k < 1 || k > v) refuse("k must be 1 to %ld", v);
    Array y = array_like(x.dims, x.shape);
    y.shape[y.dims - 1] = 1;
    y.size = rows(x);
    for (long r = 0; r < rows(x); r++) y.data[r] = kth_greatest(x.data + r * v, v, k);
    put_out(y);
}

static void apply_top_k(void) {
    Array x = array_arg("logits");
    long v = last(x), k = member(args, "k") ? (long)number_arg("k") : 0;
    if (k < 0) refuse("k must not be negative");
    for (long r = 0; r < rows(x) && k > 0 && k < v && !bug("top-k-ignored"); r++) {
        double *row = x.data + r * v, threshold = kth_greatest(row, v, k), greatest = kth_greatest(row, v, 1);
        long kept = 0;
        for (long i = 0; i < v; i++) kept += row[i] > threshold;
        for (long i = 0; i < v; i++) {
            int remove = row[i] < threshold;
            if (bug("top-k-strict")) remove = row[i] <= threshold && row[i] < greatest;
            if (bug("top-k-drops-ties") && row[i] == threshold) remove = kept++ >= k;
            if (remove) row[i] = -INFINITY;
        }
    }
    put_out(x);
}

typedef struct { double logit; long id; } Entry;

static int by_logit(const void *a, const void *b) {
    const Entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

typedef struct { Array logits, indices, cumulative, exceeds, shifted, mask; } Nucleus;

static Nucleus nucleus(Array x, double p) {
    long v = last(x);
    Nucleus n;
    Array *all[] = {&n.logits, &n.indices, &n.cumulative, &n.exceeds, &n.shifted, &n.mask};
    if (!(p >= 0)) refuse("p must not be negative");
    for (int i = 0; i < 6; i++) *all[i] = array_like(x.dims, x.shape);
    for (long r = 0; r < rows(x); r++) {
        Entry *entry = take(v * sizeof(Entry));
        double *probs = take(v * sizeof(double)), sum = 0;
        for (long i = 0; i < v; i++) entry[i] = (Entry){x.data[r * v + i], i};
        if (!bug("top-p-unsorted")) qsort(entry, v, sizeof(Entry), by_logit);
        for (long i = 0; i < v; i++) probs[i] = entry[i].logit;
        softmax_over(probs, v, 1);
        for (long i = 0; i < v; i++) {
            long here = r * v + i;
            n.logits.data[here] = entry[i].logit;
            n.indices.data[here] = entry[i].id;
            n.cumulative.data[here] = sum += probs[i];
            n.exceeds.data[here] = bug("top-p-exact-hit") ? sum >= p : sum > p;
            long back = bug("top-p-not-shifted") ? 0 : bug("top-p-one-more") ? 2 : 1;
            n.shifted.data[here] = i >= back && i > 0 ? n.exceeds.data[here - back] : 0;
            n.mask.data[r * v + entry[i].id] = n.shifted.data[here];
        }
    }
    return n;
}

static void top_p_mask(void) {
    Nucleus n = nucleus(array_arg("logits"), number_arg("p"));
    begin();
    printf("{\"sorted_logits\":");
    put(n.logits, "float64");
    printf(",\"sorted_indices\":");
    put(n.indices, "int64");
    printf(",\"cumulative\":");
    put(n.cumulative, "float64");
    printf(",\"exceeds\":");
    put(n.exceeds, "uint8");
    printf(",\"shifted\":");
    put(n.shifted, "uint8");
    printf(",\"mask\":");
    put(n.mask, "uint8");
    printf("}");
}

static void apply_top_p(void) {
    Array x = array_arg("logits");
    double p = member(args, "p") ? number_arg("p") : 1;
    Nucleus n = nucleus(x, p);
    for (long i = 0; i < x.size && p < 1 && !bug("top-p-ignored"); i++)
        if (n.mask.data[i]) x.data[i] = -INFINITY;
    put_out(x);
}

static void put_ids(Array ids) { begin(); put(ids, "int64"); }

static Array one_a_row(Array x) { return array_like(x.dims - 1, x.shape); }

static long greatest_of(const double *x, long n) {
    long best = 0;
    for (long i = 1; i < n; i++) if (x[i] > x[best] || (bug("argmax-last") && x[i] == x[best])) best = i;
    return best;
}

static void greedy(void) {
    Array x = array_arg("logits"), ids = one_a_row(x);
    for (long r = 0; r < rows(x); r++) ids.data[r] = greatest_of(x.data + r * last(x), last(x));
    put_ids(ids);
}

static long drawn(const double *probs, long v, double u) {
    double total = 0, sum = 0;
    float single = 0;
    Entry *entry = take(v * sizeof(Entry));
    for (long i = 0; i < v; i++) {
        if (!(probs[i] >= 0) || isinf(probs[i])) refuse("a probability is negative or no number");
        total += probs[i];
        single += (float)probs[i];
        entry[i] = (Entry){probs[i], i};
    }
    if (!(total > 0)) refuse("all probabilities are 0");
    if (!(u >= 0 && u < 1)) refuse("u must lie in [0, 1)");
    if (bug("draw-argmax")) return greatest_of(probs, v);
    if (bug("cdf-sorted")) qsort(entry, v, sizeof(Entry), by_logit);
    double target = fmin(u * total, nextafter(total, 0));
    float single_target = fminf((float)u * single, nextafterf(single, 0));
    single = 0;
    for (long i = 0; i < v; i++) {
        sum += entry[i].logit;
        single += (float)entry[i].logit;
        if (bug("cdf-float32") ? single > single_target : bug("cdf-inclusive") ? sum >= target : sum > target)
            return entry[i].id;
    }
    return v - 1;
}

static void multinomial(void) {
    Array probs = array_arg("probs"), u = array_arg("u"), ids = one_a_row(probs);
    for (long r = 0; r < rows(probs); r++) ids.data[r] = drawn(probs.data + r * last(probs), last(probs), u.data[r]);
    put_ids(ids);
}

/* ---- the loop ----------------------------------------------------------------------------------------------- */

#define OPERATOR(name) {#name, name}
static const struct { const char *name; void (*run)(void); } operators[] = {
    OPERATOR(rms_norm), OPERATOR(rope_tables), OPERATOR(rotate_half), OPERATOR(apply_rope), OPERATOR(repeat_kv),
    OPERATOR(causal_mask), OPERATOR(softmax), OPERATOR(silu), OPERATOR(gelu), OPERATOR(attention), OPERATOR(swiglu),
    OPERATOR(moe), OPERATOR(apply_temperature), OPERATOR(apply_repetition_penalty), OPERATOR(top_k_threshold),
    OPERATOR(apply_top_k), OPERATOR(top_p_mask), OPERATOR(apply_top_p), OPERATOR(greedy), OPERATOR(multinomial),
};

static void answer(const char *line) {
    long id = 0;
    at = line;
    if (setjmp(refusal) == 0) {
        Value *request = parse();
        id = (long)number_of(member(request, "id"));
        args = member(request, "args");
        printf("{\"id\":%ld,", id);
        const char *name = member(request, "op")->text;
        size_t i = 0, count = sizeof operators / sizeof *operators;
        while (i < count && strcmp(operators[i].name, name)) i++;
        if (i < count) operators[i].run();
        else printf("\"unsupported\":true");
    } else {
        printf("\"error\":\"%s\"", message);
    }
    printf("}\n");
    fflush(stdout);
    free_all();
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--bug") == 0) bug_id = argv[2];
    char *line = NULL;
    size_t room = 0, length = 0;
    for (int c; (c = getchar()) != EOF;) {
        if (length + 1 >= room && !(line = realloc(line, room = 2 * room + 4096))) return 1;
        line[length++] = (char)c;
        if (c == '\n') {
            line[length] = 0;
            answer(line);
            length = 0;
        }
    }
    free(line);
    return 0;
}
