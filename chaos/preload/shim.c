/* What some faults need inside a process: its wall clock may jump, its syncs to the disk may be slow, and a host name may lead
 * elsewhere. Loaded before the C library (LD_PRELOAD) into servers and workers of a drill; the harness, its recorder and whatever
 * else has no control file are untouched, and so is CLOCK_MONOTONIC, by which histories are timed.
 *
 * IRONCLAIM_CONTROL names the control file, which chaos/preload/control.py writes while the process runs. Without it everything
 * is as the C library has it. The kernel is asked directly: a clock that is read through the library would come back here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL

/* The same as LAYOUT in control.py. */
struct control {
    volatile int64_t wall_offset_ns;
    volatile int64_t sync_delay_ns;
    char host[64];
    char address[64];
};

static const struct control nothing;
static const struct control *control = &nothing;

__attribute__((constructor)) static void open_control(void) {
    const char *path = getenv("IRONCLAIM_CONTROL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, id, now);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && control->wall_offset_ns != 0) {
        int64_t wall_ns = now->tv_sec * SECOND_NS + now->tv_nsec + control->wall_offset_ns;
        now->tv_sec = wall_ns / SECOND_NS;
        now->tv_nsec = wall_ns % SECOND_NS;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec wall;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &wall);
    now->tv_sec = wall.tv_sec;
    now->tv_usec = wall.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (now != NULL) *now = wall.tv_sec;
    return wall.tv_sec;
}

static void delay_sync(void) {
    int64_t left_ns = control->sync_delay_ns;
    struct timespec pause = {left_ns / SECOND_NS, left_ns % SECOND_NS};
    while (left_ns > 0 && nanosleep(&pause, &pause) != 0) {}
}

int fsync(int file) {
    delay_sync();
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    delay_sync();
    return (int)syscall(SYS_fdatasync, file);
}

int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found) {
    int (*resolve)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    if (node != NULL && control->host[0] != '\0' && strcmp(node, control->host) == 0) node = control->address;
    return resolve(node, service, hints, found);
}
