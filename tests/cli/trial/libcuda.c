/* A stand-in for the driver's libcuda.so.1 over the host's memory: what `doctor --trial` calls, and no more.

   CUDA_STANDIN_FREE_BYTES  what is free, 64 MiB unless told
   CUDA_STANDIN_FAIL        "cuMemAlloc_v2:2" lets that call fail with that code
   CUDA_STANDIN_HANG        the call that never returns
   CUDA_STANDIN_SPOIL       so many copies on, one word of what was copied changes
   CUDA_STANDIN_SLOW_MS     what each copy takes more

   The card is named for what the process was shown, so that a test sees the pin. Calls that need a context fail where
   none is current. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201 };

static int initialised, retained;
static void *current;
static long copies;

static long number(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

static int told(const char *call)
{
    const char *hang = getenv("CUDA_STANDIN_HANG"), *fail = getenv("CUDA_STANDIN_FAIL");
    size_t length = strlen(call);

    while (hang && !strcmp(hang, call))
        pause();
    return fail && !strncmp(fail, call, length) && fail[length] == ':' ? atoi(fail + length + 1) : SUCCESS;
}

#define ENTER(call)             \
    do {                        \
        int code = told(call);  \
        if (code)               \
            return code;        \
    } while (0)
#define IN_CONTEXT(call)                \
    do {                                \
        ENTER(call);                    \
        if (!current)                   \
            return INVALID_CONTEXT;     \
    } while (0)

int cuInit(unsigned flags)
{
    ENTER("cuInit");
    initialised = 1;
    return flags ? INVALID_VALUE : SUCCESS;
}

int cuDeviceGet(int *device, int place)
{
    ENTER("cuDeviceGet");
    *device = 7;
    return !initialised ? NOT_INITIALIZED : place ? INVALID_VALUE : SUCCESS;
}

int cuDeviceGetName(char *name, int length, int device)
{
    const char *shown = getenv("CUDA_VISIBLE_DEVICES");

    ENTER("cuDeviceGetName");
    snprintf(name, (size_t)length, "stand-in of %s", shown ? shown : "all");
    return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    ENTER("cuDevicePrimaryCtxRetain");
    retained++;
    *context = &retained;
    return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER("cuDevicePrimaryCtxRelease_v2");
    retained--;
    return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuCtxSetCurrent(void *context)
{
    ENTER("cuCtxSetCurrent");
    current = context;
    return SUCCESS;
}

int cuCtxSynchronize(void)
{
    IN_CONTEXT("cuCtxSynchronize");
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    IN_CONTEXT("cuMemGetInfo_v2");
    *free_bytes = (size_t)number("CUDA_STANDIN_FREE_BYTES", 64L << 20);
    *total_bytes = *free_bytes * 2;
    return SUCCESS;
}

int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    IN_CONTEXT("cuMemAlloc_v2");
    *address = (uint64_t)(uintptr_t)malloc(size);
    return *address ? SUCCESS : 2;
}

int cuMemFree_v2(uint64_t address)
{
    IN_CONTEXT("cuMemFree_v2");
    free((void *)(uintptr_t)address);
    return SUCCESS;
}

int cuMemsetD32_v2(uint64_t address, unsigned value, size_t words)
{
    uint32_t *to = (uint32_t *)(uintptr_t)address;

    IN_CONTEXT("cuMemsetD32_v2");
    for (size_t at = 0; at < words; at++)
        to[at] = value;
    return SUCCESS;
}

int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t size)
{
    long slow = number("CUDA_STANDIN_SLOW_MS", 0);

    IN_CONTEXT("cuMemcpyDtoD_v2");
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    if (++copies == number("CUDA_STANDIN_SPOIL", 0))
        ((uint32_t *)(uintptr_t)to)[size / 8] ^= 1;
    if (slow)
        nanosleep(&(struct timespec){ slow / 1000, slow % 1000 * 1000000 }, NULL);
    return SUCCESS;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
    IN_CONTEXT("cuMemcpyDtoH_v2");
    memcpy(to, (void *)(uintptr_t)from, size);
    return SUCCESS;
}

int cuGetErrorName(int code, const char **name)
{
    *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return *name ? SUCCESS : INVALID_VALUE;
}
