/* A CUDA driver without a GPU, for tests: device memory is host memory, and launches are handed to
 * a callback.  It has what numba-cuda, cuda-core and cuda-bindings call on the way from
 * `cuda.select_device` to a launch; see cuda_fake_driver.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
       NOT_SUPPORTED = 801 };
enum { DEVICES = 2, CAPACITY = 64 << 20, CODE = 1 << 20, HEADER = 256,
       FIRST_CONTEXT = 0x1000, FIRST_STREAM = 0x5000 };
enum { MAJOR = 75, MINOR = 76, MAX_THREADS_PER_BLOCK = 0 };  /* of cuda.h */

typedef void (*launch_callback)(const uint32_t *grid, const uint32_t *block, void **parameters);

static __thread intptr_t stack[64];  /* of contexts */
static __thread int depth;
static launch_callback on_launch;
static size_t used[DEVICES];  /* counted atomically: threads come here without Python's lock */
static int streams;

void fake_on_launch(launch_callback callback) { on_launch = callback; }

static int device(void) { return depth ? (int)(stack[depth - 1] - FIRST_CONTEXT) : -1; }

static int error_name(int error, const char **name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return OK;
}
static int initialise(unsigned flags) { return OK; }
static int driver_version(int *version) { *version = 12090; return OK; }
static int device_count(int *count) { *count = DEVICES; return OK; }
static int device_get(int *handle, int index) {
    *handle = index;
    return index < DEVICES ? OK : INVALID_DEVICE;
}
static int device_name(char *name, int length, int index) {
    snprintf(name, length, "Fake GPU %d", index);
    return OK;
}
static int device_uuid(char *uuid, int index) { memset(uuid, index, 16); return OK; }
static int device_attribute(int *value, int attribute, int index) {
    *value = attribute == MAJOR ? 7 : attribute == MINOR ? 5 : 0;
    return OK;
}

static int context_retain(void **context, int index) {
    *context = (void *)(intptr_t)(FIRST_CONTEXT + index);
    return OK;
}
static int context_release(int index) { return OK; }
static int context_current(void **context) {
    *context = depth ? (void *)stack[depth - 1] : NULL;
    return OK;
}
static int context_push(void *context) { stack[depth++] = (intptr_t)context; return OK; }
static int context_pop(void **context) {
    if (!depth) return INVALID_CONTEXT;
    *context = (void *)stack[--depth];
    return OK;
}
static int context_set(void *context) {
    if (depth) depth--;
    return context ? context_push(context) : OK;
}
static int context_device(int *index) { *index = device(); return depth ? OK : INVALID_CONTEXT; }

struct header { size_t size; int device; };

static int allocate(uint64_t *address, size_t size) {
    if (!depth) return INVALID_CONTEXT;
    if (!size) return INVALID_VALUE;
    if (used[device()] + size > CAPACITY) return OUT_OF_MEMORY;
    struct header *block = aligned_alloc(HEADER, (HEADER + size + HEADER - 1) / HEADER * HEADER);
    block->size = size;
    block->device = device();
    __atomic_fetch_add(&used[device()], size, __ATOMIC_SEQ_CST);
    *address = (uint64_t)block + HEADER;
    memset((char *)*address, 0xFF, size);
    return OK;
}
static int release(uint64_t address) {
    struct header *block = (struct header *)(address - HEADER);
    __atomic_fetch_sub(&used[block->device], block->size, __ATOMIC_SEQ_CST);
    free(block);
    return OK;
}
static int memory_info(size_t *available, size_t *total) {
    if (!depth) return INVALID_CONTEXT;
    *available = CAPACITY - used[device()];
    *total = CAPACITY;
    return OK;
}

/* A stream belongs to the device that was current when it was made, and works nowhere else. */
static int stream_create(intptr_t *stream, unsigned flags) {
    int number = __atomic_fetch_add(&streams, 1, __ATOMIC_SEQ_CST);
    *stream = FIRST_STREAM + DEVICES * number + device();
    return OK;
}
static int stream_check(intptr_t stream) {
    return stream >= FIRST_STREAM && (stream - FIRST_STREAM) % DEVICES == device() ? OK
                                                                                 : INVALID_CONTEXT;
}
static int stream_destroy(intptr_t stream) { return OK; }
static int stream_flags(intptr_t stream, unsigned *flags) { *flags = 0; return OK; }
static int copy_up(uint64_t target, const void *source, size_t size, intptr_t stream) {
    memcpy((void *)target, source, size);
    return stream_check(stream);
}
static int copy_down(void *target, uint64_t source, size_t size, intptr_t stream) {
    memcpy(target, (const void *)source, size);
    return stream_check(stream);
}

/* All work is done at once, so that events have nothing to tell but mistakes. */
static int event_create(intptr_t **event, unsigned flags) {
    *event = calloc(1, sizeof **event);
    return depth ? OK : INVALID_CONTEXT;
}
static int event_destroy(intptr_t *event) { free(event); return OK; }
static int event_record(intptr_t *event, intptr_t stream) {
    *event = stream;
    return stream_check(stream);
}
static int stream_wait(intptr_t stream, intptr_t *event, unsigned flags) {
    if (!*event || *event == stream) return INVALID_VALUE;
    return stream_check(stream);
}

static int library_load(void **library, const char *code, void *a, void *b, unsigned c, void *d,
                        void *e, unsigned f) {
    if (used[device()] + CODE > CAPACITY) return OUT_OF_MEMORY;
    *library = malloc(1);
    return memcmp(code, "\177ELF", 4) ? NOT_SUPPORTED : OK;  /* a driver may be too old for PTX */
}
static int library_unload(void *library) { return OK; }
static int library_kernel(void **kernel, void *library, const char *name) {
    *kernel = strdup(name);
    return OK;
}
static int kernel_attribute(int *value, int attribute, void *kernel, int index) {
    *value = attribute == MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return OK;
}

struct launch { uint32_t grid[3], block[3], shared; intptr_t stream; };

static int launch_kernel(const struct launch *launch, void *kernel, void **parameters, void **extra) {
    const uint32_t *grid = launch->grid, *block = launch->block;
    if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2]) return INVALID_VALUE;
    if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535) return INVALID_VALUE;
    if (block[0] * block[1] * block[2] > 1024 || block[2] > 64) return INVALID_VALUE;
    if (on_launch) on_launch(grid, block, parameters);
    return stream_check(launch->stream);
}

static int not_supported(void) { return NOT_SUPPORTED; }

static const struct { const char *name; void *function; } functions[] = {
    {"cuGetErrorName", error_name}, {"cuGetErrorString", error_name},
    {"cuInit", initialise}, {"cuDriverGetVersion", driver_version},
    {"cuDeviceGetCount", device_count}, {"cuDeviceGet", device_get},
    {"cuDeviceGetName", device_name}, {"cuDeviceGetUuid", device_uuid},
    {"cuDeviceGetAttribute", device_attribute},
    {"cuDevicePrimaryCtxRetain", context_retain}, {"cuDevicePrimaryCtxRelease", context_release},
    {"cuDevicePrimaryCtxReset", context_release}, {"cuCtxGetCurrent", context_current},
    {"cuCtxSetCurrent", context_set}, {"cuCtxPushCurrent", context_push},
    {"cuCtxPopCurrent", context_pop}, {"cuCtxGetDevice", context_device},
    {"cuMemAlloc", allocate}, {"cuMemFree", release}, {"cuMemGetInfo", memory_info},
    {"cuMemcpyHtoDAsync", copy_up}, {"cuMemcpyDtoHAsync", copy_down},
    {"cuStreamCreate", stream_create}, {"cuStreamDestroy", stream_destroy},
    {"cuStreamSynchronize", stream_check}, {"cuStreamGetFlags", stream_flags},
    {"cuEventCreate", event_create}, {"cuEventDestroy", event_destroy},
    {"cuEventRecord", event_record}, {"cuStreamWaitEvent", stream_wait},
    {"cuLibraryLoadData", library_load}, {"cuLibraryUnload", library_unload},
    {"cuLibraryGetKernel", library_kernel}, {"cuKernelGetAttribute", kernel_attribute},
    {"cuLaunchKernelEx", launch_kernel},
};

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
    *function = not_supported;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(name, functions[i].name)) *function = functions[i].function;
    if (!strcmp(name, "cuGetProcAddress")) *function = cuGetProcAddress_v2;
    if (found) *found = 0;
    return OK;
}
