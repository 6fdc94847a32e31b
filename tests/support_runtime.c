/* support_runtime.c -- see support_runtime.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_runtime.h"

struct header {
    size_t size;
    _Alignas(max_align_t) char bytes[];
};

static void *resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    struct counting_allocator *state = user;
    struct header *old = ptr ? (struct header *)((char *)ptr - sizeof *old) : NULL;
    if (old && old->size != old_size) {
        fprintf(stderr, "a block of %zu bytes was said to have %zu\n", old->size, old_size);
        abort();
    }
    if (new_size == 0) {
        if (old) state->n_alive--;
        free(old);
        return NULL;
    }
    long call = atomic_fetch_add(&state->n_calls, 1) + 1;
    if (state->fail_at &&
        (call == state->fail_at || (state->fail_ever_after && call > state->fail_at)))
        return NULL;
    struct header *block = malloc(sizeof *block + new_size);
    if (!block) return NULL;
    block->size = new_size;
    if (old) memcpy(block->bytes, old->bytes, old_size < new_size ? old_size : new_size);
    if (!old) state->n_alive++;
    free(old);
    return block->bytes;
}

eider_allocator counting_allocator(struct counting_allocator *state)
{
    return (eider_allocator){resize, state};
}

eider_tensor tensor_of(void *data, eider_dtype type, int32_t rank, const int64_t *shape)
{
    return (eider_tensor){.data = data, .type = type, .rank = rank, .shape = shape};
}

void must_at(eider_status status, const char *call, const char *file, int line)
{
    if (status == EIDER_OK) return;
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, call, eider_status_name(status),
            eider_error());
    _fail(file, line);
}

const char sum_of_blocks_ll[] =
    "target triple = \"nvptx64-nvidia-cuda\"\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()\n"
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "declare void @llvm.nvvm.barrier0()\n"
    "@part = internal addrspace(3) global [256 x float] undef, align 16\n"
    "define void @k(ptr %x, float %bias, ptr %out) {\n"
    "entry:\n"
    "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    "  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
    "  %n = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()\n"
    "  %first = mul i32 %b, %n\n"
    "  %i = add i32 %first, %t\n"
    "  %px = getelementptr float, ptr %x, i32 %i\n"
    "  %v = load float, ptr %px\n"
    "  %mine = getelementptr [256 x float], ptr addrspace(3) @part, i32 0, i32 %t\n"
    "  store float %v, ptr addrspace(3) %mine\n"
    "  br label %loop\n"
    "loop:\n"
    "  %half = phi i32 [128, %entry], [%next, %tail]\n"
    "  call void @llvm.nvvm.barrier0()\n"
    "  %active = icmp ult i32 %t, %half\n"
    "  br i1 %active, label %add, label %tail\n"
    "add:\n"
    "  %o = add i32 %t, %half\n"
    "  %other = getelementptr [256 x float], ptr addrspace(3) @part, i32 0, i32 %o\n"
    "  %l = load float, ptr addrspace(3) %mine\n"
    "  %r = load float, ptr addrspace(3) %other\n"
    "  %s = fadd float %l, %r\n"
    "  store float %s, ptr addrspace(3) %mine\n"
    "  br label %tail\n"
    "tail:\n"
    "  %next = lshr i32 %half, 1\n"
    "  %more = icmp ne i32 %next, 0\n"
    "  br i1 %more, label %loop, label %done\n"
    "done:\n"
    "  %is0 = icmp eq i32 %t, 0\n"
    "  br i1 %is0, label %write, label %end\n"
    "write:\n"
    "  %sum = load float, ptr addrspace(3) %mine\n"
    "  %all = fadd float %sum, %bias\n"
    "  %po = getelementptr float, ptr %out, i32 %b\n"
    "  store float %all, ptr %po\n"
    "  br label %end\n"
    "end:\n"
    "  ret void\n"
    "}\n"
    "!nvvm.annotations = !{!0}\n"
    "!0 = !{ptr @k, !\"kernel\", i32 1}\n";
