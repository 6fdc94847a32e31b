/* cmd_emit.c -- `eider emit`: the kernel of a program at any stage, for any target.
 *
 * Needs no device: a target is enough.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "operands.h"
#include "say.h"

/* Elements of an operand that nobody describes. */
#define DEFAULT_ROWS 256

static eider_stage get_stage(const struct cli_options *options)
{
    static const char *const names[] = {"program", "ir", "opt", "ptx", "cubin"};
    const char *text = cli_options_get(options, CLI_STAGE);
    for (size_t i = 0; text && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) return (eider_stage)i;
    }
    return EIDER_STAGE_PTX;
}

static int write_text(const char *path, const char *text)
{
    size_t size = strlen(text);
    struct cli_piece pieces[] = {{text, size}, {"\n", size && text[size - 1] != '\n'}};
    return cli_file_write(path, pieces, 2);
}

static int print_kernel_json(eider_kernel *kernel, const char *path)
{
    eider_kernel_info info;
    eider_kernel_describe(kernel, &info);
    return cli_print_json(json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:{s:I, s:I, s:I, s:I}}", "file",
        path, "entry", info.entry, "target", info.target, "config", info.config, "numerics",
        info.numerics, "assembler", info.assembler, "key", info.key, "registers", info.registers,
        "spill_bytes", info.spill_bytes, "shared_bytes", info.shared_bytes, "index_bits",
        info.index_bits, "ns", "ir", (json_int_t)info.ir_ns, "opt", (json_int_t)info.opt_ns, "ptx",
        (json_int_t)info.ptx_ns, "assemble", (json_int_t)info.assemble_ns));
}

static int write_stage(const struct cli_options *options, eider_kernel *kernel, eider_stage stage,
                       const char *path)
{
    const void *data;
    size_t size;
    eider_status status = eider_kernel_stage(kernel, stage, &data, &size);
    if (status != EIDER_OK) return cli_fail_library(status);
    int to_stdout = strcmp(path, "-") == 0, json = cli_options_has(options, CLI_JSON);
    if (stage == EIDER_STAGE_CUBIN && to_stdout && isatty(STDOUT_FILENO)) {
        return cli_fail(CLI_USAGE, "machine code is not for a terminal: -o FILE");
    }
    if (json && to_stdout) return cli_fail(CLI_USAGE, "--json needs -o FILE");
    int code;
    if (stage == EIDER_STAGE_CUBIN) {
        struct cli_piece piece = {data, size};
        code = cli_file_write(path, &piece, 1);
    } else {
        code = write_text(path, data);
    }
    return !code && json ? print_kernel_json(kernel, path) : code;
}

static int compile(struct cli_session *s, eider_stage stage, const char *path)
{
    struct cli_operands operands;
    struct cli_operands_rule rule = {
        .fill = 0, .default_rows = DEFAULT_ROWS, .default_type = EIDER_BF16};
    const char *target = cli_session_target(s);
    if (!target) return CLI_LIBRARY;
    int code = cli_operands_bind(s, rule, &operands);
    eider_kernel *kernel = NULL;
    if (!code) {
        eider_request request = cli_session_request(s, operands.tensors, operands.n);
        request.target = target;
        eider_status status = eider_compile(s->ctx, &request, &kernel);
        code = status == EIDER_OK ? write_stage(s->options, kernel, stage, path)
                                  : cli_fail_library(status);
    }
    eider_kernel_release(kernel);
    cli_operands_release(s, &operands);
    return code;
}

static int run(const struct cli_options *options)
{
    const char *path = cli_options_get(options, CLI_OUTPUT);
    eider_stage stage = get_stage(options);
    struct cli_session session;
    int code = cli_session_open(options, &session);
    if (!path) path = "-";
    if (!code) code = cli_session_program(&session, options->words.at[0]);
    if (!code && stage == EIDER_STAGE_PROGRAM) {
        code = write_text(path, eider_program_text(session.program));
    } else if (!code) {
        code = compile(&session, stage, path);
    }
    cli_session_close(&session);
    return code;
}

const struct cli_command cli_cmd_emit = {
    .name = "emit",
    .summary = "Writes a program, its LLVM IR, PTX or machine code",
    .usage = "PROGRAM [--stage STAGE] [-o FILE]",
    .about =
        "No device is needed. With --target cpu (or --device cpu), ptx is assembly of the\n"
        "processor and cubin an object file. An input that no --in describes is like the\n"
        "largest that one does, else a contiguous bf16[256,4096]; of a generator only type and\n"
        "shape matter.\n",
    .examples = "  eider emit 'out = silu(gate) * up'\n"
                "  eider emit 'out = gelu_tanh(x)' --target sm_90 --math exact --stage opt\n"
                "  eider emit 'out = x * y' --in 'x=f32[64,1000]' --in 'y=f32[1000]' --stage ir\n"
                "  eider emit 'out = swiglu(x, y)' --grad all --with-forward --stage program\n"
                "  eider emit cross_entropy --in 'logits=bf16[64,1000]' --in 'target=i64[64]'\n"
                "  eider emit @kernel.txt --set vec=8,block=256 --stage cubin -o kernel.cubin\n",
    .options = CLI_USES_COMMON | CLI_USES_KERNEL | CLI_USES_OPERANDS | CLI_USES(TARGET) |
               CLI_USES(STAGE) | CLI_USES(OUTPUT),
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
