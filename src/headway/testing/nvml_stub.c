/* A stand-in for libnvidia-ml.so.1 with two cards, for tests. Built by testing/nvml_driver.py; told what to do by environment:
 *   STUB_NVML_CARDS  how many cards there are (2)
 *   STUB_NVML_FAIL   functions that answer with an error: "nvmlInit_v2=9,nvmlDeviceGetPowerUsage=3"
 *   STUB_NVML_HANG   a file; as long as it exists, a question for the load of a card hangs
 *   STUB_NVML_CRASH  a file; as long as it exists, a question for the load of a card crashes
 *   STUB_NVML_PID    a process that holds memory of card 0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Holder;

#define GIB (1ULL << 30)
static long card_of(void *device) { return (long)device - 1; }

static int fails(const char *name)
{
    const char *list = getenv("STUB_NVML_FAIL");
    const char *found = list ? strstr(list, name) : NULL;
    size_t length = strlen(name);
    return found && found[length] == '=' ? atoi(found + length + 1) : 0;
}
#define ANSWER do { int code = fails(__func__); if (code) return code; } while (0)

static void misbehave(void)
{
    const char *hang = getenv("STUB_NVML_HANG"), *crash = getenv("STUB_NVML_CRASH");
    if (crash && access(crash, F_OK) == 0) abort();
    while (hang && access(hang, F_OK) == 0) pause();
}

int nvmlInit_v2(void) { ANSWER; return 0; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; ANSWER; return 0; }
int nvmlShutdown(void) { ANSWER; return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    const char *cards = getenv("STUB_NVML_CARDS");
    ANSWER;
    *count = cards ? (unsigned)atoi(cards) : 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    ANSWER;
    *device = (void *)(long)(index + 1);
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    ANSWER;
    snprintf(name, length, "Stub Card %ld", card_of(device));
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    ANSWER;
    snprintf(uuid, length, "GPU-%08ld-aaaa-bbbb-cccc-0123456789ab", card_of(device));
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates)
{
    ANSWER;
    misbehave();
    rates->gpu = 97 - 90 * (unsigned)card_of(device);
    rates->memory = 40;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory)
{
    ANSWER;
    memory->total = 80 * GIB;
    memory->used = (60 - 50 * (unsigned long long)card_of(device)) * GIB;
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    ANSWER;
    *milliwatts = 312500 - 250000 * (unsigned)card_of(device);
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    ANSWER;
    *celsius = sensor == 0 ? 71 - (unsigned)card_of(device) : 0;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz)
{
    ANSWER;
    *mhz = kind == 1 ? 1410 - (unsigned)card_of(device) : 1593;
    return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons)
{
    ANSWER;
    *reasons = card_of(device) == 0 ? 0x4 | 0x40 : 0x1;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    ANSWER;
    *reasons = card_of(device) == 0 ? 0x4 | 0x40 : 0x1;
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *errors)
{
    ANSWER;
    if (card_of(device) == 1) return 3; /* this card has none */
    *errors = counter == 0 ? (kind == 0 ? 12 : 1) : 99;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Holder *holders)
{
    const char *pid = getenv("STUB_NVML_PID");
    unsigned have = card_of(device) == 0 ? 20 : 0;
    ANSWER;
    if (!have) { *count = 0; return 0; }
    if (*count < have) { *count = have; return 7; }
    memset(holders, 0, have * sizeof *holders);
    for (unsigned i = 0; i < have; i++) {
        holders[i].pid = 4000000 + i;
        holders[i].used = i == 1 ? ~0ULL : GIB;
    }
    holders[0].pid = pid ? (unsigned)atoi(pid) : 4000000;
    holders[0].used = 30 * GIB;
    *count = have;
    return 0;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Holder *holders)
{
    (void)device; (void)holders;
    ANSWER;
    *count = 0;
    return 0;
}
