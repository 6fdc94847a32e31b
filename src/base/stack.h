/* stack.h -- work that needs a large stack, called from a stack of any size.
 *
 * LLVM and the parser recurse; hosts call from threads with 64 KiB, from coroutines and from
 * signal stacks.  Invariant: `body` has at least EIDER_STACK_LEAST bytes below it.
 */
#ifndef EIDER_BASE_STACK_H
#define EIDER_BASE_STACK_H

#include "memory.h"

#define EIDER_STACK_LEAST ((size_t)1 << 20) /* twice what LLVM used over 16384 instructions */

/* Runs body(arg) here or, where the stack is too small or is none that the system knows, on
 * a thread of its own (as after eider_arithmetic_enter), and waits.  Its status and its
 * message become this thread's.  Fails with EIDER_OOM when no such thread can be started. */
eider_status eider_stack_run(const eider_allocator *a, eider_status (*body)(void *arg), void *arg);

#endif
