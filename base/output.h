/* base/output.h: standard output as an answer's way out: a program whose answer was not written does
 * not say that all is well.
 *     vp_output_begin();
 *     ... printf() ...
 *     return vp_output_end(&err) == VP_OK ? 0 : ...;
 */
#ifndef VP_BASE_OUTPUT_H
#define VP_BASE_OUTPUT_H

#include "base/err.h"

/* First in main(). A closed standard output stays one that cannot be written, rather than becoming
 * the next file that is opened; a broken pipe and a file as long as it may be (ulimit -f) are
 * errors of a write, not signals. */
void vp_output_begin(void);

/* Whatever was printed is written. VP_ERR_STORAGE: some of it could not be. A reader that has seen
 * enough and closed its pipe is no fault. */
vp_status vp_output_end(vp_err *err);

/* A line on standard error: head ("vplan: ") and what is said. On a terminal it is broken at spaces into
 * lines of 80 columns, which begin below the text; elsewhere it stays one, so that grep finds it. */
void vp_output_say(const char *head, const char *text);

#endif
