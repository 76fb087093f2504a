/* tool.h - penstock-model's subcommands. main.c dispatches by name from one table; each subcommand
 * is one file that parses its own flags with common/config.h, prints --help, and returns the
 * process's exit status (0, 1 failed, 2 usage). */
#ifndef PENSTOCK_WORKER_TOOL_H
#define PENSTOCK_WORKER_TOOL_H

/* argv[0] is the subcommand's name. */
int tool_info(int argc, char **argv);
int tool_tokenize(int argc, char **argv);
int tool_render(int argc, char **argv);
int tool_logits(int argc, char **argv);
int tool_perplexity(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_synth(int argc, char **argv);

#endif
