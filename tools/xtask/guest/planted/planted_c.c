// SPDX-License-Identifier: GPL-2.0
/* Faults that only C code can have, or that need no more than a few lines of it, as planted.rs has others. */

#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/processor.h>
#include <linux/workqueue.h>

static bool out_of_bounds;
module_param(out_of_bounds, bool, 0);
MODULE_PARM_DESC(out_of_bounds, "Read behind an array (UBSAN)");

static bool stall;
module_param(stall, bool, 0);
MODULE_PARM_DESC(stall, "Keep a workqueue from running for four seconds (workqueue watchdog)");

static bool race;
module_param(race, bool, 0);
MODULE_PARM_DESC(race, "Change a number on two processors at once (KCSAN)");

/* What lies behind the array is still in the same object, which KASAN has no objection to. */
static struct {
	int some[4];
	int others[4];
} numbers;

/* By the clock: a delay that counts its turns is short if it was calibrated while the machine was busy. */
static void spin(struct work_struct *work)
{
	unsigned long end = jiffies + 4 * HZ;

	while (time_before(jiffies, end))
		cpu_relax();
}

static void wait_behind(struct work_struct *work)
{
}

static DECLARE_WORK(spinning, spin);
static DECLARE_WORK(waiting, wait_behind);

static unsigned long raced;

static noinline void race_in_c(void)
{
	raced++;
}

static void race_often(struct work_struct *work)
{
	unsigned int i;

	for (i = 0; i < 1000000; i++)
		race_in_c();
}

static DECLARE_WORK(racing, race_often);

static int __init plant(void)
{
	/* Not known to the compiler; the address of the first one behind may be taken, so it is no fault. */
	unsigned int index = ARRAY_SIZE(numbers.some) + 1 + (jiffies & 1);

	if (stall) {
		/* The second one waits behind the first, on the same processor. */
		schedule_work_on(0, &spinning);
		schedule_work_on(0, &waiting);
	}
	if (out_of_bounds)
		pr_info("read %d behind an array\n", READ_ONCE(numbers.some[index]));
	if (stall)
		flush_work(&waiting);
	if (race) {
		queue_work(system_dfl_wq, &racing);
		race_often(NULL);
		flush_work(&racing);
	}
	return -ECANCELED;
}
module_init(plant);

MODULE_DESCRIPTION("Faults that the test runner has to notice, in C");
MODULE_LICENSE("GPL");
