/* foreign_lines.c -- see foreign_lines.h.
 *
 * LLVM's reader keeps no positions.  But bodies come in the order of the text, an instruction
 * begins on a line of its own, and what else a body has (labels, comments, the lines of a
 * switch) can be told apart by its first characters.
 */
#include "foreign_lines.h"

#include <llvm-c/Core.h>
#include <llvm-c/DebugInfo.h>
#include <string.h>

#define DIRECTIVES_ONLY ((LLVMDWARFEmissionKind)3) /* see ir/lines.c */
#define FILE_NAME "source.ll"

/* A place in the text. */
struct text {
    const char *at, *end;
    unsigned line; /* of `at` */
};

static size_t line_length(const struct text *t)
{
    const char *newline = memchr(t->at, '\n', (size_t)(t->end - t->at));
    return (size_t)((newline ? newline : t->end) - t->at);
}

static void next_line(struct text *t)
{
    t->at += line_length(t);
    if (t->at < t->end) t->at++;
    t->line++;
}

static int begins(const struct text *t, const char *word)
{
    size_t n = strlen(word);
    return line_length(t) >= n && memcmp(t->at, word, n) == 0;
}

/* To the line behind the next "define ... {"; 0 when there is none. */
static int find_body(struct text *t)
{
    while (t->at < t->end && !begins(t, "define ")) next_line(t);
    while (t->at < t->end) {
        size_t n = line_length(t);
        while (n && (t->at[n - 1] == ' ' || t->at[n - 1] == '\r')) n--;
        int opens = n && t->at[n - 1] == '{';
        next_line(t);
        if (opens) return 1;
    }
    return 0;
}

static int is_label(const char *at, size_t n)
{
    size_t k = 0;
    while (k < n && at[k] != ' ' && at[k] != ';') k++;
    return k > 0 && at[k - 1] == ':';
}

/* The number of the next instruction's line in this body, past which `t` moves; 0 at its end. */
static unsigned next_instruction(struct text *t)
{
    while (t->at < t->end) {
        const char *at = t->at;
        size_t n = line_length(t);
        unsigned line = t->line;
        if (n && *at == '}') return 0;
        next_line(t);
        while (n && (*at == ' ' || *at == '\t' || *at == '\r')) at++, n--;
        int closes = memchr(at, ']', n) != NULL;
        if (n == 0 || *at == ';' || is_label(at, n)) continue;
        int continues = n > 3 && memcmp(at, "to ", 3) == 0; /* of an invoke */
        if (continues) continue;
        if (n > 7 && memcmp(at, "switch ", 7) == 0 && !closes)
            while (t->at < t->end && *t->at != '}') {
                int ends = memchr(t->at, ']', line_length(t)) != NULL;
                next_line(t);
                if (ends) break;
            }
        return line;
    }
    return 0;
}

/* Gives the instructions of `f` the lines of the body at *t, or only checks that they match. */
static int walk(LLVMValueRef f, struct text *t, LLVMMetadataRef scope)
{
    LLVMContextRef context = LLVMGetTypeContext(LLVMTypeOf(f));
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
            unsigned line = next_instruction(t);
            if (!line) return 0;
            if (scope)
                LLVMInstructionSetDebugLoc(
                    i, LLVMDIBuilderCreateDebugLocation(context, line, 0, scope, NULL));
        }
    return next_instruction(t) == 0;
}

static LLVMMetadataRef make_scope(LLVMDIBuilderRef b, LLVMMetadataRef file, LLVMValueRef f,
                                  unsigned line)
{
    size_t length;
    const char *name = LLVMGetValueName2(f, &length);
    LLVMMetadataRef type = LLVMDIBuilderCreateSubroutineType(b, file, NULL, 0, LLVMDIFlagZero);
    LLVMMetadataRef scope = LLVMDIBuilderCreateFunction(b, file, name, length, name, length, file,
                                                        line, type, 0, 1, line, LLVMDIFlagZero, 1);
    LLVMSetSubprogram(f, scope);
    return scope;
}

/* Walks all bodies; with `b` numbers them. */
static int walk_all(LLVMModuleRef module, struct text t, LLVMDIBuilderRef b, LLVMMetadataRef file)
{
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
        if (LLVMIsDeclaration(f)) continue;
        if (LLVMGetSubprogram(f) || !find_body(&t)) return 0;
        if (!walk(f, &t, b ? make_scope(b, file, f, t.line) : NULL)) return 0;
    }
    return 1;
}

void eider_foreign_lines_add(LLVMModuleRef module, const char *text, size_t size)
{
    struct text t = {text, text + size, 1};
    if (LLVMGetNamedMetadata(module, "llvm.dbg.cu", 11)) return;
    if (!walk_all(module, t, NULL, NULL)) return;
    LLVMDIBuilderRef b = LLVMCreateDIBuilder(module);
    LLVMMetadataRef file = LLVMDIBuilderCreateFile(b, FILE_NAME, strlen(FILE_NAME), "", 0);
    LLVMDIBuilderCreateCompileUnit(b, LLVMDWARFSourceLanguageC99, file, "", 0, 1, "", 0, 0, "", 0,
                                   DIRECTIVES_ONLY, 0, 0, 0, "", 0, "", 0);
    walk_all(module, t, b, file);
    LLVMDIBuilderFinalize(b);
    LLVMDisposeDIBuilder(b);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(LLVMGetModuleContext(module));
    LLVMValueRef version = LLVMConstInt(i32, LLVMDebugMetadataVersion(), 0);
    LLVMAddModuleFlag(module, LLVMModuleFlagBehaviorWarning, "Debug Info Version", 18,
                      LLVMValueAsMetadata(version));
}
