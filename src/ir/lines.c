/* lines.c -- see lines.h.
 *
 * The compile unit's kind is 3, "directives only", which llvm-c/DebugInfo.h does not name: the
 * others make NVPTX write `.target debug`, for which ptxas does not optimise.
 */
#include "lines.h"

#include <llvm-c/DebugInfo.h>
#include <string.h>

#include "machine.h"

#define DIRECTIVES_ONLY ((LLVMDWARFEmissionKind)3)
#define PRODUCER "eider"
#define FILE_NAME "program"
#define VERSION_FLAG "Debug Info Version"

uint32_t eider_lines_number(struct eider_line line)
{
    uint32_t slot = line.id * EIDER_LINE_KINDS + (uint32_t)line.kind;
    return 1 + 2 * slot + (line.is_tail != 0);
}

int eider_lines_read(uint32_t number, struct eider_line *out)
{
    if (number == 0) return 0;
    uint32_t slot = (number - 1) / 2;
    *out = (struct eider_line){(enum eider_line_kind)(slot % EIDER_LINE_KINDS),
                               slot / EIDER_LINE_KINDS, (int)((number - 1) % 2)};
    return 1;
}

static void apply(struct eider_emit *e)
{
    if (!e->lines.scope) return;
    LLVMMetadataRef location = LLVMDIBuilderCreateDebugLocation(
        e->context, eider_lines_number(e->lines.now), 0, e->lines.scope, NULL);
    LLVMSetCurrentDebugLocation2(e->builder, location);
}

void eider_lines_begin(struct eider_emit *e)
{
    e->lines = (struct eider_lines){0};
    if (!e->line_info) return;
    size_t length;
    const char *name = LLVMGetValueName2(e->function, &length);
    LLVMDIBuilderRef b = LLVMCreateDIBuilder(e->module);
    LLVMMetadataRef file = LLVMDIBuilderCreateFile(b, FILE_NAME, strlen(FILE_NAME), "", 0);
    LLVMDIBuilderCreateCompileUnit(b, LLVMDWARFSourceLanguageC99, file, PRODUCER, strlen(PRODUCER),
                                   1, "", 0, 0, "", 0, DIRECTIVES_ONLY, 0, 0, 0, "", 0, "", 0);
    LLVMMetadataRef type = LLVMDIBuilderCreateSubroutineType(b, file, NULL, 0, LLVMDIFlagZero);
    e->lines.scope = LLVMDIBuilderCreateFunction(b, file, name, length, name, length, file, 1, type,
                                                 0, 1, 1, LLVMDIFlagZero, 1);
    LLVMSetSubprogram(e->function, e->lines.scope);
    LLVMDIBuilderFinalize(b);
    LLVMDisposeDIBuilder(b);
    LLVMValueRef version =
        LLVMConstInt(LLVMInt32TypeInContext(e->context), LLVMDebugMetadataVersion(), 0);
    LLVMAddModuleFlag(e->module, LLVMModuleFlagBehaviorWarning, VERSION_FLAG, strlen(VERSION_FLAG),
                      LLVMValueAsMetadata(version));
    apply(e);
}

void eider_lines_set(struct eider_emit *e, enum eider_line_kind kind, uint32_t id)
{
    e->lines.now.kind = kind;
    e->lines.now.id = id;
    apply(e);
}

void eider_lines_turn(struct eider_emit *e, enum eider_line_kind kind)
{
    e->lines.now.kind = kind;
    apply(e);
}

void eider_lines_tail(struct eider_emit *e, int is_tail)
{
    e->lines.now.is_tail = is_tail;
    apply(e);
}
