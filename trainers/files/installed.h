/* trainers/files/installed.h: the versions of libraries that a Python environment has, or that a list of requirements pins.
 *     json_t *versions;
 *     VP_TRY(vp_installed_read(".venv", &versions, err));      {"torch": "2.15.0", "transformers": "5.24.0", ...}
 * Nothing is executed. */
#ifndef VP_TRAINERS_FILES_INSTALLED_H
#define VP_TRAINERS_FILES_INSTALLED_H

#include "base/err.h"

#include <jansson.h>

/* Of a folder (an environment, its bin/python, or its site-packages): the names of its *.dist-info folders, as PyPA's "Recording installed
 * projects" has them. Of a file: its lines NAME==VERSION, as pip freeze writes them. Those of libraries that vplan knows, without what
 * is behind the numbers (2.11.0+cu130); the caller's. VP_ERR_USAGE: no such path. VP_ERR_INPUT: it has none of
 * them, or two versions of one, or names torch or transformers without a version. */
vp_status vp_installed_read(const char *path, json_t **out, vp_err *err);

#endif
