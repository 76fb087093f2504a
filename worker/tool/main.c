/* main.c - penstock-model: finds the subcommand and hands over. */
#include "common/config.h"
#include "worker/tool/tool.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} subcommands[] = {
    {"info", tool_info, "what a model file is, what it needs, whether it is supported"},
    {"tokenize", tool_tokenize, "token ids of texts, JSON lines in and out"},
    {"render", tool_render, "a chat template over conversations, JSON lines in and out"},
    {"logits", tool_logits, "logits and greedy continuations of token ids"},
    {"perplexity", tool_perplexity, "mean negative log likelihood of a text's token ids"},
    {"synth", tool_synth, "a model of a known shape with random weights, for speed tests"},
    {"bench", tool_bench, "prefill and decode speed, next to the memory bandwidth"},
};

static void print_usage(FILE *out)
{
    fprintf(out, "Usage: penstock-model SUBCOMMAND [arguments]\n\nInspects, tests and measures "
                 "models.\n\nSubcommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        fprintf(out, "  %-12s %s\n", subcommands[i].name, subcommands[i].help);
    fprintf(out, "\npenstock-model SUBCOMMAND --help tells more.\n");
}

int main(int argc, char **argv)
{
    const char *names[ARRAY_LEN(subcommands)];
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                      strcmp(argv[1], "help") == 0)) {
        print_usage(stdout);
        return 0;
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("penstock-model %s\n", PENSTOCK_VERSION);
        return 0;
    }
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++) {
        names[i] = subcommands[i].name;
        if (strcmp(argv[1], names[i]) == 0) return subcommands[i].run(argc - 1, argv + 1);
    }
    const char *near = config_nearest(argv[1], names, ARRAY_LEN(subcommands));
    fprintf(stderr,
            "penstock-model: unknown subcommand '%.80s'%s%s%s; penstock-model --help lists all\n",
            argv[1], near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
            near != NULL ? "'?" : "");
    return 2;
}
