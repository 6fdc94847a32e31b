/* support_ll.c -- see support_ll.h. */
#include "support_ll.h"

#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <stdlib.h>
#include <string.h>

static void *resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user, (void)old_size;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

const eider_allocator ll_allocator = {resize, NULL};

static void *resize_failing(void *user, void *ptr, size_t old_size, size_t new_size)
{
    struct ll_failing *failing = user;
    if (new_size == 0) return resize(NULL, ptr, old_size, 0);
    if (failing->asked++ >= failing->left) return NULL;
    return resize(NULL, ptr, old_size, new_size);
}

eider_allocator ll_failing_allocator(struct ll_failing *failing)
{
    return (eider_allocator){resize_failing, failing};
}

eider_status ll_emit(const char *text, const struct eider_codegen_job *job,
                     struct eider_codegen_result *out)
{
    return ll_emit_with(&ll_allocator, text, job, out);
}

eider_status ll_emit_with(const eider_allocator *a, const char *text,
                          const struct eider_codegen_job *job, struct eider_codegen_result *out)
{
    LLVMContextRef context = LLVMContextCreate();
    LLVMMemoryBufferRef buffer =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "test");
    LLVMModuleRef module = NULL;
    char *message = NULL;
    eider_status status = EIDER_OK;
    if (LLVMParseIRInContext(context, buffer, &module, &message)) {
        status = eider_fail(EIDER_PARSE, "%s", message);
        LLVMDisposeMessage(message);
    } else {
        status = eider_codegen_emit(a, module, job, out);
    }
    LLVMContextDispose(context);
    return status;
}

const char ll_swiglu[] =
    "define ptx_kernel void @swiglu(ptr addrspace(1) noalias readonly align 16 %gate,\n"
    "    ptr addrspace(1) noalias readonly align 16 %up, ptr addrspace(1) noalias align 16 %out)\n"
    "{\n"
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "  %f = mul i32 %b, 256\n"
    "  %i = add i32 %f, %t\n"
    "  %e = zext i32 %i to i64\n"
    "  %g = getelementptr <4 x bfloat>, ptr addrspace(1) %gate, i64 %e\n"
    "  %u = getelementptr <4 x bfloat>, ptr addrspace(1) %up, i64 %e\n"
    "  %o = getelementptr <4 x bfloat>, ptr addrspace(1) %out, i64 %e\n"
    "  %x = load <4 x bfloat>, ptr addrspace(1) %g, align 8\n"
    "  %y = load <4 x bfloat>, ptr addrspace(1) %u, align 8\n"
    "  %xf = fpext <4 x bfloat> %x to <4 x float>\n"
    "  %yf = fpext <4 x bfloat> %y to <4 x float>\n"
    "  %x0 = extractelement <4 x float> %xf, i32 0\n"
    "  %h = fmul float %x0, 0.5\n"
    "  %th = call float asm \"tanh.approx.f32 $0, $1;\", \"=f,f\"(float %h) #0\n"
    "  %s = call contract float @llvm.fma.f32(float %h, float %th, float %h)\n"
    "  %r0 = insertelement <4 x float> %xf, float %s, i32 0\n"
    "  %r = fmul <4 x float> %r0, %yf\n"
    "  %n = fptrunc <4 x float> %r to <4 x bfloat>\n"
    "  store <4 x bfloat> %n, ptr addrspace(1) %o, align 8\n"
    "  ret void\n"
    "}\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "declare float @llvm.fma.f32(float, float, float)\n"
    "attributes #0 = { nounwind willreturn memory(none) }\n";

const char ll_twice[] = "define void @twice(ptr %params, i64 %first, i64 %last)\n"
                        "{\n"
                        "entry:\n"
                        "  %p1 = getelementptr ptr, ptr %params, i64 1\n"
                        "  %s0 = load ptr, ptr %params\n"
                        "  %s1 = load ptr, ptr %p1\n"
                        "  %in = load ptr, ptr %s0\n"
                        "  %out = load ptr, ptr %s1\n"
                        "  br label %loop\n"
                        "loop:\n"
                        "  %i = phi i64 [ %first, %entry ], [ %next, %body ]\n"
                        "  %more = icmp ult i64 %i, %last\n"
                        "  br i1 %more, label %body, label %done\n"
                        "body:\n"
                        "  %a = getelementptr float, ptr %in, i64 %i\n"
                        "  %b = getelementptr float, ptr %out, i64 %i\n"
                        "  %x = load float, ptr %a\n"
                        "  %y = fmul float %x, 2.0\n"
                        "  store float %y, ptr %b\n"
                        "  %next = add i64 %i, 1\n"
                        "  br label %loop\n"
                        "done:\n"
                        "  ret void\n"
                        "}\n";
