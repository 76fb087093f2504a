/* tokenizer_trie.c - the set of control and user-defined tokens, by their spelling. */
#include "common/tokenizer_internal.h"

#include <stdlib.h>

static uint32_t node_new(struct special_trie *trie, uint8_t byte)
{
    if (trie->node_count == trie->node_cap) {
        uint32_t cap = trie->node_cap ? trie->node_cap * 2 : 256;
        struct trie_node *nodes = realloc(trie->nodes, cap * sizeof *nodes);
        if (nodes == NULL) return 0;
        trie->nodes = nodes;
        trie->node_cap = cap;
    }
    trie->nodes[trie->node_count] = (struct trie_node){.id = TOKEN_NONE, .byte = byte};
    return trie->node_count++;
}

enum err trie__init(struct special_trie *trie)
{
    *trie = (struct special_trie){0};
    (void)node_new(trie, 0);
    return trie->node_count == 1 ? OK : ERR_NOMEM;
}

void trie__deinit(struct special_trie *trie)
{
    free(trie->nodes);
    *trie = (struct special_trie){0};
}

static uint32_t child_of(const struct special_trie *trie, uint32_t node, uint8_t byte)
{
    uint32_t child = trie->nodes[node].child;
    while (child != 0 && trie->nodes[child].byte != byte)
        child = trie->nodes[child].sibling;
    return child;
}

enum err trie__add(struct special_trie *trie, struct span text, uint32_t id, bool user_defined)
{
    if (text.len == 0) return OK;
    uint32_t node = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint32_t child = child_of(trie, node, text.ptr[i]);
        if (child == 0) {
            child = node_new(trie, text.ptr[i]);
            if (child == 0) return ERR_NOMEM;
            trie->nodes[child].sibling = trie->nodes[node].child;
            trie->nodes[node].child = child;
        }
        node = child;
    }
    if (trie->nodes[node].id == TOKEN_NONE) trie->nodes[node].id = id;
    uint8_t first = text.ptr[0];
    trie->first_any_count += !trie->first_any[first];
    trie->first_any[first] = true;
    if (user_defined) {
        trie->first_user_count += !trie->first_user[first];
        trie->first_user[first] = true;
    }
    if (text.len > trie->len_max) trie->len_max = (uint32_t)text.len;
    return OK;
}

uint32_t trie__find(const struct special_trie *trie, struct span text)
{
    uint32_t node = 0;
    for (size_t i = 0; i < text.len; i++)
        if ((node = child_of(trie, node, text.ptr[i])) == 0) return TOKEN_NONE;
    return node == 0 ? TOKEN_NONE : trie->nodes[node].id;
}

uint32_t trie__match(const struct tokenizer *t, struct span text, size_t at, size_t control_end,
                     size_t *end)
{
    const struct special_trie *trie = &t->trie;
    uint32_t node = 0, found = TOKEN_NONE;
    for (size_t i = at; i < text.len;) {
        if ((node = child_of(trie, node, text.ptr[i])) == 0) break;
        i++;
        uint32_t id = trie->nodes[node].id;
        if (id != TOKEN_NONE && (i <= control_end || t->types[id] == TOKEN_USER_DEFINED)) {
            found = id;
            *end = i;
        }
    }
    return found;
}
