/* Laid under a member by LD_PRELOAD: makes its disk fail or slow and its wall clock lie, on command.
 *
 * COORDINATOR_TEST_SHIM names a file of 64-bit integers that is mapped into the process, so that the
 * test changes them while the member runs. Only files below COORDINATOR_TEST_SHIM_BELOW are touched.
 * A count n > 0 fails the next n calls, with ERROR or EIO; the counters are never reset here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SYNC_FAILURES, SYNC_DELAY_MS, WRITE_FAILURES, RENAME_FAILURES, WALL_OFFSET_MS,
       WALL_RATE_PPM, SYNCS, FAILED, WRITES_AFTER, ERROR, FIELDS };
enum { BLOCK = 4096, NOTED_MS = 500 };

static volatile int64_t none[FIELDS];
static volatile int64_t *field = none;
static const char *below = "";
static int64_t started_ns, failed_ns;

typedef long (*system_call)(long, long, long, long, long, long, long);
static system_call next_syscall(void) {
    static system_call real;
    if (real == NULL)
        real = (system_call)dlsym(RTLD_NEXT, "syscall");
    return real;
}

static int real_clock(clockid_t clock, struct timespec *now) {
    return (int)next_syscall()(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
}

static int64_t real_wall_ns(void) {
    struct timespec now;
    real_clock(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("COORDINATOR_TEST_SHIM");
    const char *prefix = getenv("COORDINATOR_TEST_SHIM_BELOW");
    if (path == NULL || prefix == NULL)
        return;
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return;
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED)
        return;
    below = prefix;
    started_ns = real_wall_ns();
    field = mapped;
}

static int is_below(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return field != none && strncmp(path, below, strlen(below)) == 0;
}

/* Takes one failure if there is one left to take. */
static int fails(int which) {
    int64_t left = __atomic_load_n(&field[which], __ATOMIC_SEQ_CST);
    while (left > 0)
        if (__atomic_compare_exchange_n(&field[which], &left, left - 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            failed_ns = real_wall_ns();
            __atomic_add_fetch(&field[FAILED], 1, __ATOMIC_SEQ_CST);
            errno = field[ERROR] ? (int)field[ERROR] : EIO;
            return 1;
        }
    return 0;
}

static int sync_with(const char *name, int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (is_below(descriptor)) {
        int64_t delay_ms = field[SYNC_DELAY_MS];
        if (delay_ms > 0) {
            struct timespec wait = {delay_ms / 1000, delay_ms % 1000 * 1000000};
            nanosleep(&wait, NULL);
        }
        __atomic_add_fetch(&field[SYNCS], 1, __ATOMIC_SEQ_CST);
        if (fails(SYNC_FAILURES))
            return -1;
    }
    return real(descriptor);
}

int fsync(int descriptor) { return sync_with("fsync", descriptor); }
int fdatasync(int descriptor) { return sync_with("fdatasync", descriptor); }

/* A sync that the kernel is asked to do aside (io_submit) is done by a thread here, as slowly and as
 * badly as any other; io_getevents waits for it. One at a time for each context. */
enum { ASIDE_MAX = 16 };
static struct aside {
    aio_context_t context; /* 0: free */
    struct iocb asked;
    int is_ended;
    int64_t result;
} asides[ASIDE_MAX];
static pthread_mutex_t aside_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t aside_ended = PTHREAD_COND_INITIALIZER;

static struct aside *aside_of(aio_context_t context) {
    for (int i = 0; i < ASIDE_MAX; i++)
        if (asides[i].context == context)
            return &asides[i];
    return NULL;
}

static void *sync_aside(void *argument) {
    struct aside *aside = argument;
    uint64_t one = 1;
    int is_good = sync_with("fdatasync", (int)aside->asked.aio_fildes) == 0, error = errno;
    int eventfd = (int)aside->asked.aio_resfd;
    pthread_mutex_lock(&aside_lock);
    aside->result = is_good ? 0 : -error;
    aside->is_ended = 1;
    pthread_cond_broadcast(&aside_ended);
    pthread_mutex_unlock(&aside_lock);
    if (next_syscall()(SYS_write, eventfd, (long)&one, sizeof one, 0, 0, 0) < 0)
        abort();
    return NULL;
}

static int begin_aside(aio_context_t context, const struct iocb *asked) {
    pthread_t thread;
    pthread_mutex_lock(&aside_lock);
    struct aside *aside = aside_of(0);
    if (aside != NULL)
        *aside = (struct aside){.context = context, .asked = *asked};
    pthread_mutex_unlock(&aside_lock);
    if (aside == NULL || pthread_create(&thread, NULL, sync_aside, aside) != 0)
        abort();
    pthread_detach(thread);
    return 1;
}

static int end_aside(struct aside *aside, struct io_event *event, const struct timespec *most) {
    struct timespec end;
    int is_ended;
    real_clock(CLOCK_REALTIME, &end);
    end.tv_sec += most->tv_sec + (end.tv_nsec + most->tv_nsec) / 1000000000;
    end.tv_nsec = (end.tv_nsec + most->tv_nsec) % 1000000000;
    pthread_mutex_lock(&aside_lock);
    while (!aside->is_ended && pthread_cond_timedwait(&aside_ended, &aside_lock, &end) == 0)
        continue;
    is_ended = aside->is_ended;
    if (is_ended) {
        *event = (struct io_event){.res = aside->result};
        aside->context = 0;
    }
    pthread_mutex_unlock(&aside_lock);
    return is_ended;
}

long syscall(long number, ...) {
    long given[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        given[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_submit) {
        struct iocb *asked = ((struct iocb **)given[2])[0];
        if (asked->aio_lio_opcode == IOCB_CMD_FDSYNC && is_below((int)asked->aio_fildes))
            return begin_aside((aio_context_t)given[0], asked);
    }
    if (number == SYS_io_getevents) {
        pthread_mutex_lock(&aside_lock);
        struct aside *aside = aside_of((aio_context_t)given[0]);
        pthread_mutex_unlock(&aside_lock);
        if (aside != NULL)
            return end_aside(aside, (struct io_event *)given[3], (struct timespec *)given[4]);
    }
    return next_syscall()(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

/* Those behind the log promise nothing; a piece of them may be under way when another call fails. */
static int are_zeros(const char *data, size_t size) {
    return size > 0 && data[0] == 0 && memcmp(data, data + 1, size - 1) == 0;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (real == NULL)
        real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if ((field[WRITE_FAILURES] > 0 || field[FAILED] > 0) && is_below(descriptor)) {
        if (field[FAILED] > 0 && !are_zeros(data, size))
            __atomic_add_fetch(&field[WRITES_AFTER], 1, __ATOMIC_SEQ_CST);
        if (fails(WRITE_FAILURES))
            return -1;
    }
    return real(descriptor, data, size);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (real == NULL)
        real = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    if ((field[WRITE_FAILURES] > 0 || field[FAILED] > 0) && is_below(descriptor)) {
        /* Records of the log fill blocks. What failed in another thread is noted a moment later. */
        if (field[FAILED] > 0 && size >= BLOCK && real_wall_ns() - failed_ns > NOTED_MS * 1000000LL)
            __atomic_add_fetch(&field[WRITES_AFTER], 1, __ATOMIC_SEQ_CST);
        if (fails(WRITE_FAILURES))
            return -1;
    }
    return real(descriptor, data, size, offset);
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    if (field != none && strncmp(to, below, strlen(below)) == 0 && fails(RENAME_FAILURES))
        return -1;
    return real(from, to);
}

/* The wall clock alone: monotonic and boottime clocks pass through. */
static int64_t lying_wall_ns(void) {
    int64_t now = real_wall_ns();
    return now + field[WALL_OFFSET_MS] * 1000000 +
           (now - started_ns) / 1000000 * field[WALL_RATE_PPM];
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (field != none && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t lie = lying_wall_ns();
        now->tv_sec = lie / 1000000000;
        now->tv_nsec = lie % 1000000000;
        return 0;
    }
    return real_clock(clock, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int64_t lie = lying_wall_ns();
    (void)zone;
    now->tv_sec = lie / 1000000000;
    now->tv_usec = lie % 1000000000 / 1000;
    return 0;
}

time_t time(time_t *into) {
    time_t now = (time_t)(lying_wall_ns() / 1000000000);
    if (into != NULL)
        *into = now;
    return now;
}
