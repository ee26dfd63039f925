/* trainers/files/python_lightning.h: what a script with Lightning's Trainer says outside of its call: batch and optimizer. */
#ifndef VP_TRAINERS_FILES_PYTHON_LIGHTNING_H
#define VP_TRAINERS_FILES_PYTHON_LIGHTNING_H

#include "trainers/files/python_reader.h"

/* Of a statement, which the reader stands behind. */
vp_status vp_python_note_lightning(vp_python_reader *r, const char *from, int line);

/* Behind the last one: what it came to joins the root, as the keys data.batch_size and optimizer of LightningCLI's file. */
vp_status vp_python_lightning_end(vp_python_reader *r);

#endif
