/* Tasks of an expanded deployment. Internal to search/tag. */
#ifndef DS_SEARCH_TAG_INTERNAL_H
#define DS_SEARCH_TAG_INTERNAL_H

#include "search/tag/tag.h"

#define DS_TAG_NONE UINT32_MAX

/* Where the replicas of a group are. */
typedef struct ds_tag_place {
    uint32_t n; /* 0: nowhere; the group's operations have no tasks, and its readers do not wait */
    ds_tag_way way;
    uint32_t gpu[DS_TAG_MAX_GPUS];
    int64_t lo[DS_TAG_MAX_GPUS + 1]; /* replica i has the samples lo[i] … lo[i + 1] - 1 */
} ds_tag_place;

typedef enum ds_tag_task_kind {
    DS_TAG_COMPUTE,
    DS_TAG_TRANSFER,
    DS_TAG_COLLECTIVE
} ds_tag_task_kind;

typedef struct ds_tag_task {
    ds_tag_task_kind kind;
    bool is_replica; /* of `op`; other tasks carry or change its result */
    uint32_t op;
    uint32_t from, gpu; /* a transfer goes from GPU to GPU; a collective has its tensors' */
    int64_t us;
    uint32_t first_in, n_in;   /* in ds_tag_tasks.in */
    uint32_t first_out, n_out; /* in ds_tag_tasks.tensor */
} ds_tag_task;

/* A copy on a GPU: there from the end of its maker to the end of its last reader. */
typedef struct ds_tag_tensor {
    uint32_t gpu, maker, n_readers;
    int64_t bytes;
} ds_tag_tensor;

typedef struct ds_tag_tasks {
    const ds_tag_problem *problem;
    ds_arena *arena;
    uint32_t n_gpus;
    uint32_t *machine_of;     /* [GPU] */
    DS_VEC(ds_tag_task) task; /* in order of creation */
    DS_VEC(ds_tag_tensor) tensor;
    DS_VEC(uint32_t) in;  /* tensors that tasks read */
    uint32_t *first_task; /* [n_ops + 1]: tasks made for operation i start here */
} ds_tag_tasks;

static inline int64_t ds_tag__mb_per_s(const ds_tag_tasks *t, uint32_t from, uint32_t to) {
    const ds_tag_cluster *c = &t->problem->cluster;
    return c->mb_per_s[t->machine_of[from] * c->n_machines + t->machine_of[to]];
}

/* The least bandwidth between GPUs of a place; INT64_MAX for one GPU. */
int64_t ds_tag__slowest_mb_per_s(const ds_tag_tasks *tasks, const ds_tag_place *place);

/* Problem, arena and machines of an empty list of tasks. */
void ds_tag__tasks_init(ds_tag_tasks *tasks, const ds_tag_problem *problem, ds_arena *arena);
/* The place of one group; action->gpus may be 0. */
ds_status ds_tag__place(const ds_tag_tasks *tasks, const ds_tag_action *action, uint32_t group,
                        ds_tag_place *place, ds_error *err);
/* The places of all groups: [n_groups], in the arena. */
ds_status ds_tag__places(const ds_tag_tasks *tasks, const ds_tag_action *action, ds_tag_place **out,
                         ds_error *err);
/* owner[op]: the GPU of each operation of a group whose way is `split`; others are not written. */
void ds_tag__partition(const ds_tag_graph *graph, uint32_t group, const ds_tag_place *place,
                       uint32_t *owner);
void ds_tag__expand(ds_tag_tasks *tasks, const ds_tag_place *place);

#endif
