/* sass_html.c -- a report on machine code as a page; see sass_report.h. */
#include "sass_report.h"
#include "say.h"

int cli_sass_write_page(const struct cli_sass_input *in, const char *path)
{
    (void)in;
    return cli_fail(CLI_USAGE, "%s: pages are not written yet", path);
}
