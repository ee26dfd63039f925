/* report/page.h: a page of HTML that needs nothing but itself: no network, no script.
 *     vp_page_begin(&page, "gpt2 on t4-16gb", "FITS: 13.85 of 14.56 GiB");
 *     vp_page_table(&page, ...);
 *     vp_page_end(&page);
 * Texts are escaped here: they may come from files. */
#ifndef VP_REPORT_PAGE_H
#define VP_REPORT_PAGE_H

#include "base/text.h"

/* Text as it may stand in HTML and SVG, between tags or in an attribute. */
void vp_page_text(vp_text *out, const char *text);

/* To the first section; the title is its heading, answer the line below. */
void vp_page_begin(vp_text *out, const char *title, const char *answer);
void vp_page_end(vp_text *out);

void vp_page_heading(vp_text *out, const char *text);
void vp_page_paragraph(vp_text *out, const char *text);

/* A row of a table, its first cell a word, the others figures; heads: of the first row. The table is
 * opened and closed around them. */
void vp_page_table_begin(vp_text *out);
void vp_page_row(vp_text *out, int heads, const char *const *cells, int n);
void vp_page_table_end(vp_text *out);

#endif
