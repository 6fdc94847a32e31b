/* eider.c -- the command-line tool: the table of commands, and main.
 *
 * To add a command: a file cmd_NAME.c that defines cli_cmd_NAME, its declaration in
 * cli.h, and its row here.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "options.h"
#include "say.h"

static const struct cli_command *const commands[] = {
    &cli_cmd_list, &cli_cmd_emit, &cli_cmd_run,   &cli_cmd_check,  &cli_cmd_bench,
    &cli_cmd_sass, &cli_cmd_tune, &cli_cmd_cache, &cli_cmd_doctor,
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void help(void)
{
    puts("eider compiles fusion programs, such as 'out = silu(gate) * up', into one kernel.\n\n"
         "Usage: eider COMMAND ...\n\nCommands:");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        printf("  %-8s %s\n", commands[i]->name, commands[i]->summary);
    }
    puts("\n'eider COMMAND --help' shows a command's options and examples; "
         "'eider --version' the version.\n\n"
         "PROGRAM is text, statements separated by ';' or newlines, or @FILE, or a name of\n"
         "'eider list kernels', such as softmax.\n\n"
         "Exit codes:\n"
         "  0  success\n"
         "  1  a check or expectation failed\n"
         "  2  the command line is wrong\n"
         "  3  the library reported an error\n"
         "  4  a file could not be read or written, or is malformed");
}

static int fail_unknown(const char *name)
{
    struct cli_suggestion near = cli_suggestion_start(name, strlen(name));
    for (size_t i = 0; i < N_COMMANDS; i++) cli_suggestion_offer(&near, commands[i]->name);
    return cli_fail(CLI_USAGE, "unknown command '%s'%s", name, cli_suggestion_text(&near));
}

static const struct cli_command *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(name, commands[i]->name) == 0) return commands[i];
    return NULL;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    struct cli_options options;
    int code = cli_options_parse(command, argc, argv, &options);
    if (code) return code;
    if (cli_options_has(&options, CLI_HELP))
        cli_options_help(command);
    else
        code = command->run(&options);
    cli_options_release(&options);
    return code;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    int is_help = strcmp(name, "help") == 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (is_help && argc == 2)) {
        help();
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0) {
        printf("eider %s\n", eider_version());
        return CLI_OK;
    }
    if (is_help) name = argv[2];
    const struct cli_command *command = find(name);
    if (!command) return fail_unknown(name);
    if (!is_help) return run(command, argc - 2, argv + 2);
    cli_options_help(command);
    return CLI_OK;
}

/* A file that is opened while a standard descriptor is closed would become it.  What is
 * opened here cannot be written, so that a closed output is reported as before. */
static void keep_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    signal(SIGPIPE, SIG_IGN); /* a write that fails is reported instead */
    int code = dispatch(argc, argv);
    cli_progress_end();
    int written = cli_finish_stdout();
    return code ? code : written;
}
