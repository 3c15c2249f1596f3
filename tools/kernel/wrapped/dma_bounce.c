// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: the DMA mappings of smc.ko as a machine has them that bounces them and whose caches are not
 * coherent with devices. Soft RDMA devices take kernel addresses, so a missing synchronisation does no harm
 * there; with this each mapping has memory of its own, and it is a wrong byte.
 *
 * Of each mapping there are two views, that of the CPU (what was mapped) and that of the device. Bytes go from
 * one to the other when somebody synchronises them. Bytes which the CPU wrote and did not synchronise are in its
 * cache: should the device write there as well, they are written back over that.
 *
 * It warns of what is unmapped or synchronised otherwise than it was mapped, and, when it goes, of mappings that are
 * left. By its parameters it leaves out synchronisations, as a module would that forgets them.
 *
 * smc.ko is linked so that it calls these functions in place of its helpers: see `build`.
 */
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#define WRAP(name) __wrap_smc_helper_ib_dma_##name

u64 WRAP(map_single)(struct ib_device *dev, void *cpu_addr, size_t size, enum dma_data_direction dir);
void WRAP(unmap_single)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
void WRAP(unmap_single_unsynced)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
int WRAP(mapping_error)(struct ib_device *dev, u64 addr);
void WRAP(sync_single_for_cpu)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
void WRAP(sync_single_for_device)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir);
bool WRAP(need_sync)(struct ib_device *dev, u64 addr);
size_t WRAP(max_mapping_size)(struct ib_device *dev);

/* As much as a swiotlb takes. */
#define MAX_SIZE SZ_256K

static unsigned long mapped, unmapped, to_cpu, to_device, written_back, left_out;
module_param(mapped, ulong, 0444);
MODULE_PARM_DESC(mapped, "Mappings made");
module_param(unmapped, ulong, 0444);
MODULE_PARM_DESC(unmapped, "Mappings that were removed");
module_param(to_cpu, ulong, 0444);
MODULE_PARM_DESC(to_cpu, "Bytes synchronised for the CPU");
module_param(to_device, ulong, 0444);
MODULE_PARM_DESC(to_device, "Bytes synchronised for a device");
module_param(written_back, ulong, 0444);
MODULE_PARM_DESC(written_back, "Bytes that a device wrote and the CPU's cache overwrote");
module_param(left_out, ulong, 0444);
MODULE_PARM_DESC(left_out, "Synchronisations that were left out");

/* Planted faults. */
static unsigned int skip_to_cpu, skip_to_device;
module_param(skip_to_cpu, uint, 0644);
MODULE_PARM_DESC(skip_to_cpu, "Leave out one of so many long synchronisations for the CPU; 0: none");
module_param(skip_to_device, uint, 0644);
MODULE_PARM_DESC(skip_to_device, "Leave out one of so many long synchronisations for a device; 0: none");

/* Bytes. CDC and LLC messages are shorter, so that only data are left unsynchronised. */
#define LONG_SIZE 64

/* Memory that is mapped, for one or more devices. */
struct memory {
	u8 *cpu;
	/* What the CPU saw when the bytes were synchronised last, by whatever mapping. */
	u8 *clean;
	size_t size;
	unsigned int mappings;
};

struct mapping {
	struct memory *mem;
	u8 *device;
	enum dma_data_direction dir;
};

static DEFINE_SPINLOCK(lock);

static u8 *get_pages(size_t size)
{
	return (u8 *)__get_free_pages(GFP_ATOMIC | __GFP_COMP | __GFP_NOWARN, get_order(size));
}

static void put_pages(u8 *pages, size_t size)
{
	if (pages)
		free_pages((unsigned long)pages, get_order(size));
}

/* The memory at an address that was mapped, and the mapping at one that is a device's, are noted with the page. */
static void *note_of(const void *addr)
{
	return (void *)page_private(virt_to_head_page(addr));
}

static void set_note(const void *addr, const void *note)
{
	set_page_private(virt_to_head_page(addr), (unsigned long)note);
}

static struct mapping *mapping_at(u64 addr)
{
	return note_of((void *)(uintptr_t)addr);
}

static struct memory *get_memory(u8 *cpu, size_t size)
{
	struct memory *mem = note_of(cpu);

	if (mem) {
		WARN_ON(cpu != mem->cpu || size != mem->size);
	} else {
		mem = kzalloc(sizeof(*mem), GFP_ATOMIC);
		if (!mem)
			return NULL;
		mem->clean = get_pages(size);
		if (!mem->clean) {
			kfree(mem);
			return NULL;
		}
		mem->cpu = cpu;
		mem->size = size;
		memcpy(mem->clean, cpu, size);
		set_note(cpu, mem);
	}
	mem->mappings++;
	return mem;
}

static void put_memory(struct memory *mem)
{
	if (--mem->mappings)
		return;
	set_note(mem->cpu, NULL);
	put_pages(mem->clean, mem->size);
	kfree(mem);
}

static void free_mapping(struct mapping *map)
{
	set_note(map->device, NULL);
	put_pages(map->device, map->mem->size);
	put_memory(map->mem);
	kfree(map);
	unmapped++;
}

/* What is unmapped is one mapping, whole, as it was mapped. */
static void check_unmap(struct mapping *map, u64 addr, size_t size, enum dma_data_direction dir)
{
	WARN_ON(addr != (uintptr_t)map->device || size != map->mem->size || dir != map->dir);
}

static void __no_sanitize_address bring(struct mapping *map, size_t from, size_t size)
{
	u8 *cpu = map->mem->cpu, *clean = map->mem->clean;

	for (size_t i = from; i < from + size; i++) {
		if (cpu[i] == clean[i]) {
			cpu[i] = map->device[i];
		} else {
			written_back += map->device[i] != clean[i];
			map->device[i] = cpu[i];
		}
		clean[i] = cpu[i];
	}
}

static void __no_sanitize_address write_back(struct mapping *map, size_t from, size_t size)
{
	u8 *cpu = map->mem->cpu;

	/* Bytes that were written and made clean by way of another mapping count, too. */
	for (size_t i = from; i < from + size; i++) {
		map->device[i] = cpu[i];
		map->mem->clean[i] = cpu[i];
	}
}

u64 WRAP(map_single)(struct ib_device *dev, void *cpu_addr, size_t size, enum dma_data_direction dir)
{
	struct mapping *map;

	if (size > MAX_SIZE)
		return DMA_MAPPING_ERROR;
	map = kzalloc(sizeof(*map), GFP_KERNEL);
	if (!map)
		return DMA_MAPPING_ERROR;
	map->device = get_pages(size);
	if (!map->device)
		goto no_pages;
	spin_lock_bh(&lock);
	map->mem = get_memory(cpu_addr, size);
	if (!map->mem)
		goto no_memory;
	map->dir = dir;
	set_note(map->device, map);
	write_back(map, 0, size);
	mapped++;
	spin_unlock_bh(&lock);
	return (uintptr_t)map->device;

no_memory:
	spin_unlock_bh(&lock);
	put_pages(map->device, size);
no_pages:
	kfree(map);
	return DMA_MAPPING_ERROR;
}
EXPORT_SYMBOL_GPL(WRAP(map_single));

void WRAP(unmap_single_unsynced)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	spin_lock_bh(&lock);
	check_unmap(mapping_at(addr), addr, size, dir);
	free_mapping(mapping_at(addr));
	spin_unlock_bh(&lock);
}
EXPORT_SYMBOL_GPL(WRAP(unmap_single_unsynced));

void WRAP(unmap_single)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	spin_lock_bh(&lock);
	check_unmap(mapping_at(addr), addr, size, dir);
	if (dir != DMA_TO_DEVICE)
		bring(mapping_at(addr), 0, size);
	free_mapping(mapping_at(addr));
	spin_unlock_bh(&lock);
}
EXPORT_SYMBOL_GPL(WRAP(unmap_single));

int WRAP(mapping_error)(struct ib_device *dev, u64 addr)
{
	return addr == DMA_MAPPING_ERROR ? -ENOMEM : 0;
}
EXPORT_SYMBOL_GPL(WRAP(mapping_error));

static void sync(u64 addr, size_t size, enum dma_data_direction dir, unsigned int skip,
		 void (*copy)(struct mapping *, size_t, size_t))
{
	static unsigned int turn;
	struct mapping *map;
	size_t from;

	spin_lock_bh(&lock);
	map = mapping_at(addr);
	from = (u8 *)(uintptr_t)addr - map->device;
	WARN_ON(dir != map->dir && map->dir != DMA_BIDIRECTIONAL);
	if (skip && size > LONG_SIZE && ++turn % skip == 0)
		left_out++;
	else if (!WARN_ON(from > map->mem->size || size > map->mem->size - from))
		copy(map, from, size);
	spin_unlock_bh(&lock);
}

void WRAP(sync_single_for_cpu)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	if (dir != DMA_TO_DEVICE)
		sync(addr, size, dir, READ_ONCE(skip_to_cpu), bring);
	to_cpu += size;
}
EXPORT_SYMBOL_GPL(WRAP(sync_single_for_cpu));

void WRAP(sync_single_for_device)(struct ib_device *dev, u64 addr, size_t size, enum dma_data_direction dir)
{
	sync(addr, size, dir, READ_ONCE(skip_to_device), write_back);
	to_device += size;
}
EXPORT_SYMBOL_GPL(WRAP(sync_single_for_device));

bool WRAP(need_sync)(struct ib_device *dev, u64 addr)
{
	return true;
}
EXPORT_SYMBOL_GPL(WRAP(need_sync));

size_t WRAP(max_mapping_size)(struct ib_device *dev)
{
	return MAX_SIZE;
}
EXPORT_SYMBOL_GPL(WRAP(max_mapping_size));

static void __exit dma_bounce_exit(void)
{
	WARN(mapped != unmapped, "%lu mappings were made, %lu removed", mapped, unmapped);
}
module_exit(dma_bounce_exit);

MODULE_DESCRIPTION("DMA mappings that are neither shared nor coherent, for tests");
MODULE_LICENSE("GPL");
