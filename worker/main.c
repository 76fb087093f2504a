/* main.c - penstock-worker: settings, a model, a backend, an engine; threads for the link, the
 * engine and the probes. */
#include "common/clock.h"
#include "common/config.h"
#include "common/log.h"
#include "common/tokenizer.h"
#include "kernels/isa.h"
#include "worker/admin.h"
#include "worker/backend/backend.h"
#include "worker/link.h"
#include "worker/loop.h"
#include "worker/model/transformer.h"
#include "proto/wire.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct settings {
    const char *model, *model_name, *gateways, *admin, *name;
    uint32_t threads, device, isa, context, sequences, waiting, kv_type, step_tokens, chunk_tokens,
        tpot_ms, log_level, drain_timeout_ms;
    uint64_t kv_memory;
    double watermark;
    bool prefix_cache;
};

enum { LIVE_SILENT_S = 60, LINGER_MS = 1000, CONTEXT_DEFAULT_MAX = 32768 };
#define KV_MEMORY_DEFAULT_MAX (UINT64_C(2) << 30)

struct worker {
    struct settings set;
    struct model *model;
    struct backend *backend;
    struct transformer *transformer;
    struct engine *engine;
    struct metrics *metrics;
    struct mailbox *mailbox;
    struct loop *loop;
    struct link *link;
    struct admin *admin;
    uint32_t kv_blocks;
    char model_id[256], device[128], name[256];
};

static enum config_result read_settings(struct settings *s, int argc, char **argv,
                                        struct errmsg *why)
{
    const struct config_item items[] = {
        {"model", CONFIG_STRING, &s->model, NULL, 0, 0, NULL, "", "GGUF file to serve."},
        {"model-name", CONFIG_STRING, &s->model_name, NULL, 0, 0, NULL, "",
         "Model id that clients use; by default the file's name without .gguf."},
        {"gateway", CONFIG_STRING, &s->gateways, "tcp://127.0.0.1:5570", 0, 0, NULL, "",
         "Gateways to serve, separated by commas."},
        {"admin", CONFIG_STRING, &s->admin, "127.0.0.1:8082", 0, 0, NULL, "",
         "HOST:PORT for /health/live, /health/ready and /metrics."},
        {"name", CONFIG_STRING, &s->name, NULL, 0, 0, NULL, "",
         "Name in logs and metrics; by default host and process id."},
        {"device", CONFIG_CHOICE, &s->device, "auto", 0, 0, "auto|cpu", "",
         "Where to compute; auto takes the CPU in this build."},
        {"threads", CONFIG_U32, &s->threads, "0", 0, 256, NULL, "",
         "Compute threads; 0 takes all cores."},
        {"isa", CONFIG_CHOICE, &s->isa, "auto", 0, 0, "auto|plain|avx2|avx512", "",
         "Instruction set of the CPU ops."},
        {"context", CONFIG_U32, &s->context, "0", 0, 1 << 20, NULL, "tokens",
         "Longest prompt plus output; 0 takes the model's, at most 32768."},
        {"max-sequences", CONFIG_U32, &s->sequences, "64", 1, 512, NULL, "",
         "Sequences computed at once."},
        {"max-waiting", CONFIG_U32, &s->waiting, "16", 1, 4096, NULL, "",
         "Requests taken ahead of room: they start without a round trip to the gateway."},
        {"kv-memory", CONFIG_U64, &s->kv_memory, "0", 0, 0, NULL, "bytes",
         "Memory of the KV cache; 0 takes a quarter of what is free, at most 2G."},
        {"kv-type", CONFIG_CHOICE, &s->kv_type, "f16", 0, 0, "f16|q8", "",
         "Type of the KV cache: q8 needs half the memory and costs a little accuracy "
         "(docs/performance.md)."},
        {"step-tokens", CONFIG_U32, &s->step_tokens, "512", 16, STEP_ROWS_MAX, NULL, "tokens",
         "Tokens computed by one step at most."},
        {"chunk-tokens", CONFIG_U32, &s->chunk_tokens, "0", 0, STEP_ROWS_MAX, NULL, "tokens",
         "Prefill tokens of a step; 0 chooses from the measured cost of steps."},
        {"tpot-target-ms", CONFIG_U32, &s->tpot_ms, "50", 1, 10000, NULL, "ms",
         "While streams decode, a step with prefill should take no longer."},
        {"watermark", CONFIG_F64, &s->watermark, "0.02", 0, 0.5, NULL, "",
         "Share of KV blocks kept free when requests are admitted."},
        {"prefix-cache", CONFIG_BOOL, &s->prefix_cache, "true", 0, 0, NULL, "",
         "Reuse the KV blocks of equal prompt prefixes."},
        {"drain-timeout-ms", CONFIG_U32, &s->drain_timeout_ms, "30000", 0, 3600000, NULL, "ms",
         "After SIGTERM: time for running sequences to end."},
        {"log-level", CONFIG_CHOICE, &s->log_level, "info", 0, 0, "debug|info|warn|error", "",
         "Least level that is logged."},
    };
    const struct config config = {
        "penstock-worker",
        "Serves one model: continuous batching, paged KV cache and prefix caching, behind one or "
        "more gateways.",
        "--model FILE.gguf [options]",
        "Example:\n  penstock-worker --model SmolLM2-135M-Instruct.Q4_1.gguf --gateway "
        "tcp://127.0.0.1:5570\n",
        items,
        ARRAY_LEN(items),
        0};
    enum config_result result = config_parse(&config, argc, argv, NULL, NULL, why);
    if (result == CONFIG_RUN && s->model == NULL) {
        errmsg_set(why, ERR_INVALID, "--model FILE.gguf is missing; see penstock-worker --help");
        return CONFIG_EXIT_BAD;
    }
    return result;
}

static uint32_t core_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set) > 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static void load_progress(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    fprintf(stderr, "\rloading the model: %3u %%%s", (unsigned)(total ? done * 100 / total : 100),
            done >= total ? "\n" : "");
    fflush(stderr);
}

/* The id for clients: --model-name, or the file's name without its folder and .gguf. */
static void name_model(struct worker *w)
{
    const char *path = w->set.model, *slash = strrchr(path, '/');
    const char *base = w->set.model_name != NULL ? w->set.model_name
                       : slash != NULL           ? slash + 1
                                                 : path;
    size_t n = strlen(base);
    if (w->set.model_name == NULL && n > 5 && strcmp(base + n - 5, ".gguf") == 0) n -= 5;
    (void)snprintf(w->model_id, sizeof w->model_id, "%.*s", (int)n, base);
    char host[128] = "worker";
    (void)gethostname(host, sizeof host - 1);
    if (w->set.name != NULL)
        (void)snprintf(w->name, sizeof w->name, "%s", w->set.name);
    else
        (void)snprintf(w->name, sizeof w->name, "%s-%d", host, (int)getpid());
}

static enum err size_kv(struct worker *w, struct errmsg *why)
{
    struct settings *s = &w->set;
    uint32_t trained = w->model->context_train;
    if (s->context == 0) s->context = trained < CONTEXT_DEFAULT_MAX ? trained : CONTEXT_DEFAULT_MAX;
    if (s->context > trained)
        log_warn("ev=worker.context_beyond_training context=%u trained=%u", s->context, trained);
    static const enum kv_type types[] = {KV_F16, KV_Q8};
    size_t block = transformer_kv_block_bytes(w->model, w->backend, types[s->kv_type]);
    uint64_t memory = s->kv_memory;
    if (memory == 0) {
        memory = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;
        if (memory > KV_MEMORY_DEFAULT_MAX) memory = KV_MEMORY_DEFAULT_MAX;
    }
    uint64_t most = (uint64_t)s->sequences * ((s->context + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
    uint64_t blocks = memory / block;
    if (s->kv_memory == 0 && blocks > most * 2)
        blocks = most * 2; /* twice: room for a cache of what has ended */
    if (blocks > UINT32_MAX / KV_BLOCK_TOKENS) blocks = UINT32_MAX / KV_BLOCK_TOKENS;
    if (blocks < 4)
        return errmsg_set(
            why, ERR_INVALID,
            "--kv-memory %llu: one block of %d tokens takes %zu bytes; give at least %zu",
            (unsigned long long)memory, KV_BLOCK_TOKENS, block, block * 4);
    w->kv_blocks = (uint32_t)blocks;
    if ((uint64_t)s->context > blocks * KV_BLOCK_TOKENS) {
        log_warn("ev=worker.context_lowered context=%u kv_tokens=%llu", s->context,
                 (unsigned long long)blocks * KV_BLOCK_TOKENS);
        s->context = (uint32_t)(blocks * KV_BLOCK_TOKENS);
    }
    return OK;
}

static enum err forward(void *arg, struct step *step)
{
    return transformer_forward(arg, step);
}

static enum err make_engine(struct worker *w, struct errmsg *why)
{
    const struct settings *s = &w->set;
    static const enum kv_type types[] = {KV_F16, KV_Q8};
    static const char *const layouts[] = {"cpu-f16-v1", "cpu-q8-v1"};
    struct transformer_options forward_options = {
        .limits = {.rows_max = s->step_tokens,
                   .sequences_max = s->sequences,
                   .context_max = s->context,
                   .copies_max = s->sequences},
        .logits_rows_max = s->sequences < s->step_tokens ? s->sequences : s->step_tokens,
        .kv_type = types[s->kv_type],
        .kv_blocks = w->kv_blocks,
    };
    enum err err = transformer_create(w->model, w->backend, &forward_options, &w->transformer, why);
    if (err != OK) return err;
    struct tokenizer *tokenizer;
    err = tokenizer_create(buffer_view(&w->model->tokenizer_asset), &tokenizer, why);
    if (err != OK) return err;
    uint32_t eog_count;
    const uint32_t *eog = tokenizer_eog(tokenizer, &eog_count);
    struct engine_options options = {
        .sequences_max = s->sequences,
        .waiting_max = s->waiting,
        .context_max = s->context,
        .kv_blocks = w->kv_blocks,
        .step_tokens_max = s->step_tokens,
        .chunk_tokens = s->chunk_tokens,
        .tpot_target_ms = s->tpot_ms,
        .watermark = (float)s->watermark,
        .prefix_cache = s->prefix_cache,
        .block_root_model = w->model->fingerprint,
        .kv_layout = layouts[s->kv_type],
        .eog_ids = eog,
        .eog_count = eog_count,
        .cpu_ops = backend_cpu_ops(w->backend),
        .pool = backend_cpu_pool(w->backend),
    };
    struct engine_executor executor = {w->transformer, forward, w->model->vocab_count};
    err = engine_create(&options, &executor, &w->engine, why);
    tokenizer_destroy(tokenizer);
    return err;
}

static enum err open_model(struct worker *w, struct errmsg *why)
{
    struct settings *s = &w->set;
    if (s->threads == 0) s->threads = core_count();
    uint64_t start = clock_now_ns();
    struct model_options load = {.threads = s->threads,
                                 .progress = isatty(2) ? load_progress : NULL};
    enum err err = model_load(s->model, &load, &w->model, why);
    if (err == OK) err = backend_cpu_create(s->threads, (int)s->isa - 1, &w->backend, why);
    if (err == OK) err = size_kv(w, why);
    if (err == OK) err = make_engine(w, why);
    if (err != OK) return err;
    w->backend->ops->describe(w->backend, w->device, sizeof w->device);
    log_info("ev=worker.loaded model=%s arch=%s layers=%u weights_mib=%llu kv_blocks=%u context=%u "
             "device=\"%s\" ms=%llu",
             w->model_id, w->model->arch, w->model->layer_count,
             (unsigned long long)(w->model->weight_bytes >> 20), w->kv_blocks, s->context,
             w->device, (unsigned long long)((clock_now_ns() - start) / NS_PER_MS));
    return OK;
}

static bool probe_live(void *arg)
{
    struct worker *w = arg;
    return clock_now_ns() - loop_last_turn_ns(w->loop) < LIVE_SILENT_S * NS_PER_S;
}

static bool probe_ready(void *arg)
{
    struct worker *w = arg;
    return link_sessions(w->link) > 0 && !loop_draining(w->loop);
}

static enum err make_shells(struct worker *w, struct errmsg *why)
{
    const struct settings *s = &w->set;
    uint64_t epoch = 0;
    while (epoch == 0)
        clock_random(&epoch, sizeof epoch);
    struct stat st;
    w->metrics = metrics_create();
    w->mailbox = mailbox_create(FRAME_BYTES_MAX);
    if (w->metrics == NULL || w->mailbox == NULL)
        return errmsg_set(why, ERR_NOMEM, "no memory for the worker's threads");
    w->loop = loop_create(
        &(struct loop_options){w->engine, w->mailbox, w->metrics, epoch, s->drain_timeout_ms});
    if (w->loop == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for the engine loop");
    struct link_options options = {.gateways = s->gateways,
                                   .mailbox = w->mailbox,
                                   .metrics = w->metrics,
                                   .epoch = epoch,
                                   .worker_name = w->name,
                                   .model_id = w->model_id,
                                   .device = w->device,
                                   .fingerprint = w->model->fingerprint,
                                   .tokenizer_asset = buffer_view(&w->model->tokenizer_asset),
                                   .chat_template = buffer_view(&w->model->chat_template),
                                   .vocab_count = w->model->vocab_count,
                                   .context_max = s->context,
                                   .sequences_max = s->sequences,
                                   .kv_blocks = w->kv_blocks,
                                   .submit_window = s->sequences + s->waiting,
                                   .model_created =
                                       stat(s->model, &st) == 0 ? (int64_t)st.st_mtime : 0};
    enum err err = link_create(&options, &w->link, why);
    if (err != OK) return err;
    struct admin_probes probes = {w, probe_live, probe_ready};
    return admin_start(s->admin, w->metrics, &probes, &w->admin, why);
}

static void *link_thread(void *arg)
{
    struct worker *w = arg;
    link_run(w->link, LINGER_MS);
    return NULL;
}

static void *engine_thread(void *arg)
{
    struct worker *w = arg;
    loop_run(w->loop);
    (void)kill(getpid(), SIGUSR1); /* wakes the main thread, which waits for signals */
    return NULL;
}

/* SIGTERM or SIGINT drains; a second one stops at once. */
static void wait_for_end(struct worker *w, const sigset_t *signals)
{
    uint32_t asked = 0;
    for (;;) {
        int sig = 0;
        if (sigwait(signals, &sig) != 0) continue;
        if (sig == SIGUSR1 && loop_done(w->loop)) return;
        if (sig != SIGTERM && sig != SIGINT) continue;
        struct command c = {.kind = asked++ == 0 ? COMMAND_DRAIN : COMMAND_STOP};
        log_info("ev=worker.signal signal=%d action=%s", sig,
                 c.kind == COMMAND_DRAIN ? "drain" : "stop");
        mailbox_order(w->mailbox, &c);
    }
}

static void worker_deinit(struct worker *w)
{
    admin_stop(w->admin);
    link_destroy(w->link);
    loop_destroy(w->loop);
    mailbox_destroy(w->mailbox);
    if (w->engine != NULL) engine_destroy(w->engine);
    transformer_destroy(w->transformer);
    if (w->backend != NULL) w->backend->ops->destroy(w->backend);
    model_destroy(w->model);
    if (w->metrics != NULL) metrics_destroy(w->metrics);
}

static int run(struct worker *w, const sigset_t *signals)
{
    pthread_t link, engine;
    if (pthread_create(&link, NULL, link_thread, w) != 0) return 1;
    if (pthread_create(&engine, NULL, engine_thread, w) != 0) {
        link_stop(w->link);
        (void)pthread_join(link, NULL);
        return 1;
    }
    log_info("ev=worker.start name=%s model=%s gateways=%s admin=%s", w->name, w->model_id,
             w->set.gateways, w->set.admin);
    wait_for_end(w, signals);
    (void)pthread_join(engine, NULL);
    link_stop(w->link);
    (void)pthread_join(link, NULL);
    log_info("ev=worker.end");
    return 0;
}

int main(int argc, char **argv)
{
    static struct worker w;
    struct errmsg why = {""};
    enum config_result result = read_settings(&w.set, argc, argv, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_EXIT_BAD) {
        fprintf(stderr, "penstock-worker: %s\n", why.text);
        return 2;
    }
    log_set_level((enum log_level)w.set.log_level);
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &signals,
                          NULL); /* inherited by every thread; the main thread waits for them */
    (void)signal(SIGPIPE, SIG_IGN);
    name_model(&w);
    enum err err = open_model(&w, &why);
    if (err == OK) err = make_shells(&w, &why);
    if (err != OK) fprintf(stderr, "penstock-worker: %s\n", why.text);
    int status = err == OK ? run(&w, &signals) : 1;
    worker_deinit(&w);
    return status;
}
