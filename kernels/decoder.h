/* One pass of a llama-architecture decoder over consecutive tokens, as tasks.
 *
 * Weights and caches stay on the device between runs; a pass of T tokens works in five buffers: x (the
 * residual stream), normed, qkv, attended, gated, each [features, T] with the tokens of a feature side by
 * side, so that the rows one task writes are one contiguous region.
 *
 *     embed (AIV)
 *     per layer   rmsnorm (AIV) - qkv rows (AIC, split) - attention (AIV, one per KV head)
 *                 - o rows added to x (AIC, split) - rmsnorm (AIV) - gate, up, silu (AIC, split)
 *                 - down rows added to x (AIC, split)
 *     last token  rmsnorm (AIV) - head rows (AIC, split) - argmax (AIV)
 *
 * The buffers are used again in every layer, and by every second pass. That is safe without any ordering of
 * writers after readers: each stage reads the whole of the one before it, so whoever overwrites a buffer
 * already comes after all who read it. Neighbouring passes meet only in the caches and overlap as far as
 * those allow.
 *
 * The norm that opens a half layer claims whole the buffers whose parts the half layer will write. It orders
 * nothing that was not ordered, but the tasks that last used a buffer then meet in one task, instead of each
 * in every task that writes a part. A long prompt would need more dependencies than a run has.
 */
#ifndef SIMPLER_KERNELS_DECODER_H
#define SIMPLER_KERNELS_DECODER_H

#include <simpler/orchestration.h>

#include <string.h>

#define ORCHESTRATION_EXPORT __attribute__((visibility("default")))

/* The callable's kernel list, in this order. */
enum { KERNEL_EMBED, KERNEL_RMSNORM, KERNEL_MATMUL, KERNEL_ATTENTION, KERNEL_GATE_UP, KERNEL_ARGMAX };

/* Tensors of the chip entry. */
enum {
    CHIP_WEIGHTS, /* the packed image, U8, device */
    CHIP_CACHE,   /* keys and values: [layers, 2, kv_heads, capacity, head] F32, device */
    CHIP_ROPE,    /* [capacity, head / 2, 2] F32: cosine and sine of each angle, device */
    CHIP_LOGITS,  /* [vocabulary] F32, device, of the last token */
    CHIP_TOKENS,  /* I32: the tokens to read */
    CHIP_NEXT,    /* I32: the one token that follows */
    CHIP_TENSORS
};

/* Scalars of the chip entry. Offsets are bytes in the image; those of a layer count from its region. */
enum {
    MODEL_LAYERS,
    MODEL_DIM,
    MODEL_HEADS,
    MODEL_KV_HEADS,
    MODEL_HEAD,
    MODEL_FFN,
    MODEL_VOCABULARY,
    MODEL_EPS, /* bits of a float */
    CACHE_CAPACITY,
    RUN_POSITION,     /* of the first token */
    RUN_TOKENS,       /* to read */
    RUN_CHUNK,        /* tokens of a pass, at most */
    RUN_SPLITS,       /* tasks that share the rows of a layer's matrix */
    RUN_HEAD_SPLITS,  /* tasks that share the rows of the head */
    RUN_TIMED,        /* not 0: time tasks in slots */
    LAYERS_OFFSET,
    LAYER_STRIDE,
    ATTENTION_NORM_OFFSET,
    QKV_OFFSET,
    QKV_DTYPE,
    O_OFFSET,
    O_DTYPE,
    FFN_NORM_OFFSET,
    GATE_UP_OFFSET,
    GATE_UP_DTYPE,
    DOWN_OFFSET,
    DOWN_DTYPE,
    FINAL_NORM_OFFSET,
    EMBEDDING_OFFSET,
    EMBEDDING_DTYPE,
    HEAD_OFFSET,
    HEAD_DTYPE,
    CHIP_SCALARS
};

typedef struct Decoder {
    const SimplerOrchestrationApi *api;
    SimplerRun *run;
    const SimplerTensor *tensors;
    const uint64_t *scalars;
} Decoder;

/* Where a pass works: [features, capacity] each. */
typedef struct Workspace {
    int made; /* not 0 once the runtime has made the buffers */
    SimplerTensor x, normed, qkv, attended, gated;
} Workspace;

/* One pass: its tokens and its views [features, tokens] of a workspace. */
typedef struct Pass {
    uint32_t tokens;
    uint64_t position;
    SimplerTensor x, normed, qkv, attended, gated;
} Pass;

static inline uint64_t dtype_bytes(uint8_t dtype, uint64_t elements) {
    switch (dtype) {
    case SIMPLER_Q4_1: return elements / 32 * 20;
    case SIMPLER_Q8_0: return elements / 32 * 34;
    case SIMPLER_U8: return elements;
    default: return elements * 4;
    }
}

/* A view [rows, columns] that starts `offset` bytes into `buffer`. */
static inline SimplerTensor view(const SimplerTensor *buffer, uint64_t offset, uint8_t dtype, uint64_t rows,
                                 uint64_t columns) {
    SimplerTensor tensor = *buffer;
    tensor.start_offset += offset;
    tensor.extent = dtype_bytes(dtype, rows * columns);
    tensor.dtype = dtype;
    tensor.contiguous = 1;
    tensor.ndims = 2;
    memset(tensor.shapes, 0, sizeof tensor.shapes);
    tensor.shapes[0] = (uint32_t)rows;
    tensor.shapes[1] = (uint32_t)columns;
    return tensor;
}

/* Rows [first, first + rows) of a view in F32. */
static inline SimplerTensor rows_of(const SimplerTensor *tensor, uint64_t first, uint64_t rows) {
    return view(tensor, first * tensor->shapes[1] * 4, SIMPLER_F32, rows, tensor->shapes[1]);
}

/* A buffer that the runtime is to make. */
static inline SimplerTensor to_make(uint64_t rows, uint64_t columns) {
    SimplerTensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.bytes = rows * columns * 4;
    tensor.owner_task = SIMPLER_NO_TASK;
    tensor.address_space = SIMPLER_DEVICE_MEMORY;
    return view(&tensor, 0, SIMPLER_F32, rows, columns);
}

static inline SimplerTensor weights(const Decoder *decoder, uint64_t offset, uint8_t dtype, uint64_t rows,
                                    uint64_t columns) {
    return view(&decoder->tensors[CHIP_WEIGHTS], offset, dtype, rows, columns);
}

static inline uint64_t layer_offset(const Decoder *decoder, uint64_t layer, int role) {
    return decoder->scalars[LAYERS_OFFSET] + layer * decoder->scalars[LAYER_STRIDE] + decoder->scalars[role];
}

/* Task-timing slots of a run that is to be timed: the embedding, the norm that opens each of the first
 * layers, the argmax. From one to the next is a layer's time. */
enum {
    SLOT_NONE = SIMPLER_TASK_TIMING_SLOT_NONE,
    SLOT_EMBED = 0,
    SLOT_LAYER = 1,
    SLOT_ARGMAX = SIMPLER_TASK_TIMING_SLOT_MAX
};

/* 0, or a negative error code. `slot` is one of those above. */
static inline int64_t submit(const Decoder *decoder, int32_t slot, int core, int32_t kernel,
                             const SimplerTaskArg *args, uint32_t arg_count, const uint64_t *scalars,
                             uint32_t scalar_count) {
    SimplerTask task = simpler_task(args, arg_count);
    if (decoder->scalars[RUN_TIMED] && slot != SLOT_NONE)
        simpler_task_set_timing_slot(&task, slot);
    task.scalars = scalars;
    task.scalar_count = scalar_count;
    if (core == SIMPLER_AIC) task.aic = kernel;
    else task.aiv0 = kernel;
    int64_t id = decoder->api->submit_task(decoder->run, &task);
    return id < 0 ? id : 0;
}

/* First row of part `part` of `parts`, which differ by at most one row. */
static inline uint64_t part_start(uint64_t rows, uint64_t parts, uint64_t part) { return rows * part / parts; }

/* The first pass in a workspace has the runtime make it; the kernel itself writes x alone. */
static inline int64_t submit_embed(const Decoder *decoder, Workspace *workspace, Pass *pass, uint64_t first_token,
                                   uint64_t capacity) {
    const uint64_t *s = decoder->scalars;
    uint64_t qkv_rows = (s[MODEL_HEADS] + 2 * s[MODEL_KV_HEADS]) * s[MODEL_HEAD];
    SimplerTensor tokens =
        view(&decoder->tensors[CHIP_TOKENS], first_token * sizeof(int32_t), SIMPLER_I32, pass->tokens, 1);
    SimplerTensor embedding = weights(decoder, s[EMBEDDING_OFFSET], (uint8_t)s[EMBEDDING_DTYPE],
                                      s[MODEL_VOCABULARY], s[MODEL_DIM]);
    uint64_t use = workspace->made ? SIMPLER_OUTPUT_EXISTING : SIMPLER_OUTPUT;
    if (!workspace->made) {
        workspace->x = to_make(s[MODEL_DIM], capacity);
        workspace->normed = to_make(s[MODEL_DIM], capacity);
        workspace->qkv = to_make(qkv_rows, capacity);
        workspace->attended = to_make(s[MODEL_HEADS] * s[MODEL_HEAD], capacity);
        workspace->gated = to_make(s[MODEL_FFN], capacity);
    }
    uint64_t scalars[] = {pass->tokens};
    SimplerTaskArg args[] = {{&tokens, SIMPLER_INPUT}, {&embedding, SIMPLER_NO_DEP}, {&workspace->x, use},
                             {&workspace->normed, use}, {&workspace->qkv, use},      {&workspace->attended, use},
                             {&workspace->gated, use}};
    int64_t error = submit(decoder, SLOT_EMBED, SIMPLER_AIV, KERNEL_EMBED, args, 7, scalars, 1);
    workspace->made = 1;
    pass->x = view(&workspace->x, 0, SIMPLER_F32, s[MODEL_DIM], pass->tokens);
    pass->normed = view(&workspace->normed, 0, SIMPLER_F32, s[MODEL_DIM], pass->tokens);
    pass->qkv = view(&workspace->qkv, 0, SIMPLER_F32, qkv_rows, pass->tokens);
    pass->attended = view(&workspace->attended, 0, SIMPLER_F32, s[MODEL_HEADS] * s[MODEL_HEAD], pass->tokens);
    pass->gated = view(&workspace->gated, 0, SIMPLER_F32, s[MODEL_FFN], pass->tokens);
    return error;
}

/* normed = rmsnorm(x), and a claim on the parts of the half layer that it opens. */
static inline int64_t submit_layer_norm(const Decoder *decoder, int32_t slot, Pass *pass, uint64_t weight_offset,
                                        SimplerTensor *claims[], uint32_t claim_count) {
    SimplerTensor weight = weights(decoder, weight_offset, SIMPLER_F32, decoder->scalars[MODEL_DIM], 1);
    SimplerTaskArg args[3 + 2] = {
        {&pass->x, SIMPLER_INOUT}, {&weight, SIMPLER_NO_DEP}, {&pass->normed, SIMPLER_OUTPUT_EXISTING}};
    uint32_t count = 3;
    for (uint32_t claim = 0; claim < claim_count; claim++)
        args[count++] = (SimplerTaskArg){claims[claim], SIMPLER_OUTPUT_EXISTING};
    uint64_t scalars[] = {0, decoder->scalars[MODEL_EPS]};
    return submit(decoder, slot, SIMPLER_AIV, KERNEL_RMSNORM, args, count, scalars, 2);
}

/* `parts` tasks that share the rows of out = matrix x, or of out += matrix x. */
static inline int64_t submit_matmul(const Decoder *decoder, uint64_t offset, uint8_t dtype, SimplerTensor *x,
                                    const SimplerTensor *out, uint64_t parts, int add) {
    uint64_t rows = out->shapes[0], columns = x->shapes[0];
    int64_t error = 0;
    for (uint64_t part = 0; part < parts && !error; part++) {
        uint64_t first = part_start(rows, parts, part), count = part_start(rows, parts, part + 1) - first;
        if (!count) continue;
        SimplerTensor matrix =
            weights(decoder, offset + dtype_bytes(dtype, first * columns), dtype, count, columns);
        SimplerTensor result = rows_of(out, first, count);
        SimplerTaskArg args[] = {{&matrix, SIMPLER_NO_DEP},
                                 {x, SIMPLER_INPUT},
                                 {&result, add ? SIMPLER_INOUT : SIMPLER_OUTPUT_EXISTING}};
        uint64_t scalars[] = {(uint64_t)add};
        error = submit(decoder, SLOT_NONE, SIMPLER_AIC, KERNEL_MATMUL, args, 3, scalars, 1);
    }
    return error;
}

static inline int64_t submit_gate_up(const Decoder *decoder, uint64_t layer, Pass *pass) {
    const uint64_t *s = decoder->scalars;
    uint8_t dtype = (uint8_t)s[GATE_UP_DTYPE];
    uint64_t offset = layer_offset(decoder, layer, GATE_UP_OFFSET);
    uint64_t rows = s[MODEL_FFN], columns = s[MODEL_DIM];
    int64_t error = 0;
    for (uint64_t part = 0; part < s[RUN_SPLITS] && !error; part++) {
        uint64_t first = part_start(rows, s[RUN_SPLITS], part);
        uint64_t count = part_start(rows, s[RUN_SPLITS], part + 1) - first;
        if (!count) continue;
        SimplerTensor gate =
            weights(decoder, offset + dtype_bytes(dtype, first * columns), dtype, count, columns);
        SimplerTensor up =
            weights(decoder, offset + dtype_bytes(dtype, (rows + first) * columns), dtype, count, columns);
        SimplerTensor result = rows_of(&pass->gated, first, count);
        SimplerTaskArg args[] = {{&gate, SIMPLER_NO_DEP},
                                 {&up, SIMPLER_NO_DEP},
                                 {&pass->normed, SIMPLER_INPUT},
                                 {&result, SIMPLER_OUTPUT_EXISTING}};
        error = submit(decoder, SLOT_NONE, SIMPLER_AIC, KERNEL_GATE_UP, args, 4, NULL, 0);
    }
    return error;
}

static inline int64_t submit_attention(const Decoder *decoder, uint64_t layer, Pass *pass) {
    const uint64_t *s = decoder->scalars;
    uint64_t head = s[MODEL_HEAD], kv_heads = s[MODEL_KV_HEADS], heads = s[MODEL_HEADS];
    uint64_t group = heads / kv_heads;
    uint64_t cached = pass->position + pass->tokens;
    uint64_t cache_bytes = s[CACHE_CAPACITY] * head * 4;
    int64_t error = 0;
    for (uint64_t kv_head = 0; kv_head < kv_heads && !error; kv_head++) {
        SimplerTensor q = rows_of(&pass->qkv, kv_head * group * head, group * head);
        SimplerTensor k = rows_of(&pass->qkv, (heads + kv_head) * head, head);
        SimplerTensor v = rows_of(&pass->qkv, (heads + kv_heads + kv_head) * head, head);
        uint64_t keys_at = (2 * layer * kv_heads + kv_head) * cache_bytes;
        const SimplerTensor *cache = &decoder->tensors[CHIP_CACHE];
        SimplerTensor keys = view(cache, keys_at, SIMPLER_F32, cached, head);
        SimplerTensor values = view(cache, keys_at + kv_heads * cache_bytes, SIMPLER_F32, cached, head);
        SimplerTensor rope =
            view(&decoder->tensors[CHIP_ROPE], pass->position * head * 4, SIMPLER_F32, pass->tokens, head);
        SimplerTensor out = rows_of(&pass->attended, kv_head * group * head, group * head);
        SimplerTaskArg args[] = {{&q, SIMPLER_INPUT},     {&k, SIMPLER_INPUT},      {&v, SIMPLER_INPUT},
                                 {&keys, SIMPLER_INOUT},  {&values, SIMPLER_INOUT}, {&rope, SIMPLER_NO_DEP},
                                 {&out, SIMPLER_OUTPUT_EXISTING}};
        uint64_t scalars[] = {pass->position};
        error = submit(decoder, SLOT_NONE, SIMPLER_AIV, KERNEL_ATTENTION, args, 7, scalars, 1);
    }
    return error;
}

static inline int64_t submit_layer(const Decoder *decoder, uint64_t layer, Pass *pass) {
    const uint64_t *s = decoder->scalars;
    SimplerTensor *attention_claims[] = {&pass->qkv, &pass->attended}, *ffn_claims[] = {&pass->gated};
    int32_t slot = layer < SLOT_ARGMAX - SLOT_LAYER ? SLOT_LAYER + (int32_t)layer : SLOT_NONE;
    int64_t error = submit_layer_norm(
        decoder, slot, pass, layer_offset(decoder, layer, ATTENTION_NORM_OFFSET), attention_claims, 2);
    if (!error)
        error = submit_matmul(decoder, layer_offset(decoder, layer, QKV_OFFSET), (uint8_t)s[QKV_DTYPE],
                              &pass->normed, &pass->qkv, s[RUN_SPLITS], 0);
    if (!error) error = submit_attention(decoder, layer, pass);
    if (!error)
        error = submit_matmul(decoder, layer_offset(decoder, layer, O_OFFSET), (uint8_t)s[O_DTYPE],
                              &pass->attended, &pass->x, s[RUN_SPLITS], 1);
    if (!error)
        error = submit_layer_norm(decoder, SLOT_NONE, pass, layer_offset(decoder, layer, FFN_NORM_OFFSET), ffn_claims, 1);
    if (!error) error = submit_gate_up(decoder, layer, pass);
    if (!error)
        error = submit_matmul(decoder, layer_offset(decoder, layer, DOWN_OFFSET), (uint8_t)s[DOWN_DTYPE],
                              &pass->gated, &pass->x, s[RUN_SPLITS], 1);
    return error;
}

/* All layers over `tokens` tokens, of which the first is number `first_token` of this run. */
static inline int64_t submit_pass(const Decoder *decoder, Workspace *workspace, Pass *pass, uint64_t first_token,
                                  uint64_t tokens, uint64_t capacity) {
    pass->tokens = (uint32_t)tokens;
    pass->position = decoder->scalars[RUN_POSITION] + first_token;
    int64_t error = submit_embed(decoder, workspace, pass, first_token, capacity);
    for (uint64_t layer = 0; layer < decoder->scalars[MODEL_LAYERS] && !error; layer++) {
        if (decoder->api->is_fatal(decoder->run)) return -1;
        error = submit_layer(decoder, layer, pass);
    }
    return error;
}

/* Logits of the pass's last token, and the token that they favour. */
static inline int64_t submit_head(const Decoder *decoder, Pass *pass) {
    const uint64_t *s = decoder->scalars;
    SimplerTensor last = to_make(s[MODEL_DIM], 1);
    SimplerTensor weight = weights(decoder, s[FINAL_NORM_OFFSET], SIMPLER_F32, s[MODEL_DIM], 1);
    SimplerTensor logits = view(&decoder->tensors[CHIP_LOGITS], 0, SIMPLER_F32, s[MODEL_VOCABULARY], 1);
    SimplerTensor next = view(&decoder->tensors[CHIP_NEXT], 0, SIMPLER_I32, 1, 1);
    SimplerTaskArg norm_args[] = {{&pass->x, SIMPLER_INPUT}, {&weight, SIMPLER_NO_DEP}, {&last, SIMPLER_OUTPUT}};
    uint64_t norm_scalars[] = {pass->tokens - 1, s[MODEL_EPS]};
    int64_t error = submit(decoder, SLOT_NONE, SIMPLER_AIV, KERNEL_RMSNORM, norm_args, 3, norm_scalars, 2);
    if (!error)
        error = submit_matmul(decoder, s[HEAD_OFFSET], (uint8_t)s[HEAD_DTYPE], &last, &logits,
                              s[RUN_HEAD_SPLITS], 0);
    SimplerTaskArg argmax_args[] = {{&logits, SIMPLER_INPUT}, {&next, SIMPLER_OUTPUT_EXISTING}};
    if (!error) error = submit(decoder, SLOT_ARGMAX, SIMPLER_AIV, KERNEL_ARGMAX, argmax_args, 2, NULL, 0);
    return error;
}

/* Why these arguments cannot be run, or NULL. What the model's loader has checked is not checked again. */
static inline const char *refusal(const Decoder *decoder) {
    const uint64_t *s = decoder->scalars;
    if (!s[RUN_TOKENS]) return "decoder: no token to read";
    if (s[RUN_POSITION] + s[RUN_TOKENS] > s[CACHE_CAPACITY]) return "decoder: the tokens exceed the cache";
    if (decoder->tensors[CHIP_TOKENS].bytes < s[RUN_TOKENS] * sizeof(int32_t))
        return "decoder: fewer token words than tokens";
    if (!s[RUN_CHUNK] || !s[RUN_SPLITS] || !s[RUN_HEAD_SPLITS]) return "decoder: a chunk or split of 0";
    return NULL;
}

static inline void configure(SimplerOrchestrationConfig *config) {
    config->tensors_min = CHIP_TENSORS;
    config->scalars_min = CHIP_SCALARS;
}

#endif
