/* models/zoo/zoo.c: the models that need no file. Every entry is the text of a config.json, read
 * when it is asked for and by the same reader as a file; parameter counts are computed from it,
 * never stated here. */
#include "models/zoo/zoo_internal.h"

#include <string.h>

static const vp_zoo_entry *const tables[] = {
    vp_zoo_gpt2,     vp_zoo_llama,  vp_zoo_mistral, vp_zoo_qwen,     vp_zoo_gemma,
    vp_zoo_phi3,     vp_zoo_olmo2,  vp_zoo_opt,     vp_zoo_gpt_neox, vp_zoo_bert,
    vp_zoo_recorded, vp_zoo_seeing, vp_zoo_encoders};
enum { N_TABLES = sizeof tables / sizeof *tables };

const vp_zoo_entry *vp_zoo_at(int idx)
{
    for (int t = 0; t < N_TABLES; t++)
        for (const vp_zoo_entry *z = tables[t]; z->name; z++)
            if (idx-- == 0)
                return z;
    return NULL;
}

const vp_zoo_entry *vp_zoo_find(const char *name)
{
    const vp_zoo_entry *z;

    for (int i = 0; (z = vp_zoo_at(i)); i++)
        if (strcmp(z->name, name) == 0)
            return z;
    return NULL;
}

const vp_zoo_entry *vp_zoo_find_hub_id(const char *id)
{
    const vp_zoo_entry *z;

    for (int i = 0; (z = vp_zoo_at(i)); i++)
        if (z->hub_id && strcmp(z->hub_id, id) == 0)
            return z;
    return NULL;
}

bool vp_zoo_has_graph(const vp_zoo_entry *entry)
{
    static const vp_zoo_entry *const recorded[] = {vp_zoo_recorded, vp_zoo_seeing, vp_zoo_encoders};

    for (size_t t = 0; t < sizeof recorded / sizeof *recorded; t++)
        for (const vp_zoo_entry *z = recorded[t]; z->name; z++)
            if (z == entry)
                return false;
    return true;
}
