/*
 * Lets the threads of a program that waits in io_uring take turns under valgrind.
 *
 * Under valgrind one thread runs at a time, and it gives way in system calls that are known to wait.
 * io_uring_enter is not among them (3.19): the first thread that sleeps in its ring stops all others. With
 * this library in front (LD_PRELOAD) the ring is entered without waiting, and the wait happens in poll(2), on
 * an eventfd that the kernel rings when the ring has something. To the program it looks as if it had been
 * woken early now and then.
 *
 * It does not ring (Linux 6.18) for what another eventfd's being written causes, once that has happened before:
 * such a signal inside a signal is put off once and then dropped. So the ring is looked at now and then as well.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/io_uring.h may be missing where this is compiled. */
#define ENTER_GETEVENTS 1u
#define REGISTER_EVENTFD 4u
#define RINGS 4096
/* Slept at a time: a thread woken by another's eventfd may be so late. */
#define SLEEP_MS 200

static long (*real)(long, ...);
/* By the ring's descriptor. A ring is entered by one thread only, so no two write one place. */
static int bells[RINGS];

__attribute__((constructor)) static void find(void)
{
    real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
}

static int bell_of(long ring)
{
    if (ring < 0 || ring >= RINGS)
        return -1;
    if (bells[ring] == 0) {
        int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (bell < 0)
            return -1;
        if (real(SYS_io_uring_register, ring, REGISTER_EVENTFD, &bell, 1) < 0) {
            close(bell);
            return -1;
        }
        bells[ring] = bell;
    }
    return bells[ring];
}

static long enter(long ring, long submit, long flags, int bell)
{
    long done = real(SYS_io_uring_enter, ring, submit, 0L, flags, NULL, 0L);
    if (done < 0)
        return done;
    struct pollfd door = { .fd = bell, .events = POLLIN };
    uint64_t rung;
    int seen;
    /* What this finds is rung for too, since the thread itself finds it. */
    while ((seen = poll(&door, 1, SLEEP_MS)) == 0)
        real(SYS_io_uring_enter, ring, 0L, 0L, flags, NULL, 0L);
    if (seen > 0 && read(bell, &rung, sizeof rung) < 0)
        return done;
    /* What rang may be work that only the ring's own thread can finish. */
    real(SYS_io_uring_enter, ring, 0L, 0L, flags, NULL, 0L);
    return done;
}

long syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_uring_enter && a[2] > 0 && ((unsigned long)a[3] & ENTER_GETEVENTS)) {
        int bell = bell_of(a[0]);
        if (bell >= 0)
            return enter(a[0], a[1], a[3], bell);
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
