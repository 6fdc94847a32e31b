/* arithmetic.h -- numbers as programs mean them, whatever the host has set.
 *
 * Invariant: between enter and leave rounding is to nearest even, subnormal numbers count,
 * nothing traps and a decimal point is a point; afterwards the thread's settings and flags
 * are as before.  Between begin and end the same holds of arithmetic alone.
 * Rounding modes and locales are of a thread, and decide what strtod, printf and constant
 * folding give.
 */
#ifndef EIDER_BASE_ARITHMETIC_H
#define EIDER_BASE_ARITHMETIC_H

#include <fenv.h>
#include <locale.h>

/* What the host had set. */
struct eider_arithmetic {
    fenv_t environment;
    locale_t locale;
};

/* Around parsing, folding and printing.  glibc hands out one static object for "C": nothing
 * is allocated, nothing is to free. */
static inline void eider_arithmetic_enter(struct eider_arithmetic *host)
{
    fegetenv(&host->environment);
    fesetenv(FE_DFL_ENV);
    host->locale = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static inline void eider_arithmetic_leave(const struct eider_arithmetic *host)
{
    uselocale(host->locale);
    fesetenv(&host->environment);
}

/* Around generated code, where a launch counts nanoseconds: x86's vector unit alone. */
#if defined(__x86_64__)
#define EIDER_MXCSR_DEFAULT 0x1f80u /* all exceptions masked, to nearest */

typedef unsigned eider_arithmetic_state;

static inline eider_arithmetic_state eider_arithmetic_begin(void)
{
    eider_arithmetic_state host = __builtin_ia32_stmxcsr();
    if (host != EIDER_MXCSR_DEFAULT) __builtin_ia32_ldmxcsr(EIDER_MXCSR_DEFAULT);
    return host;
}

static inline void eider_arithmetic_end(eider_arithmetic_state host)
{
    __builtin_ia32_ldmxcsr(host);
}
#else
typedef fenv_t eider_arithmetic_state;

static inline eider_arithmetic_state eider_arithmetic_begin(void)
{
    fenv_t host;
    fegetenv(&host);
    fesetenv(FE_DFL_ENV);
    return host;
}

static inline void eider_arithmetic_end(eider_arithmetic_state host)
{
    fesetenv(&host);
}
#endif

#endif
