/* unicode_case.h - upper and lower case of code points, full mappings, and which can be printed.
 * Source: the Unicode Character Database (UnicodeData.txt, the unconditional part of
 * SpecialCasing.txt). Any thread. */
#ifndef PENSTOCK_COMMON_UNICODE_CASE_H
#define PENSTOCK_COMMON_UNICODE_CASE_H

#include <stdbool.h>
#include <stdint.h>

/* Code points of the upper, lower or title case of cp; 1 to 3 of them are written. */
uint32_t unicode_upper(uint32_t cp, uint32_t out[3]);
uint32_t unicode_lower(uint32_t cp, uint32_t out[3]);
uint32_t unicode_title(uint32_t cp, uint32_t out[3]);
bool unicode_is_cased(uint32_t cp); /* has an upper, lower or title case form */
bool unicode_is_word(uint32_t cp);  /* a letter or a number of any kind */
/* Neither a control, format, surrogate, private or unassigned character nor a separator; the blank
 * (U+0020) is printable. Python's str.isprintable. */
bool unicode_is_printable(uint32_t cp);

#endif
