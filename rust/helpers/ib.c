// SPDX-License-Identifier: GPL-2.0
/* include/rdma/ib_verbs.h */
int smc_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr)
{
	return ib_post_send(qp, wr, bad_wr);
}

int smc_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr)
{
	return ib_post_recv(qp, wr, bad_wr);
}

bool smc_helper_rdma_protocol_roce_eth_encap(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce_eth_encap(dev, port);
}

const char *smc_helper_ib_device_name(struct ib_device *dev)
{
	return dev_name(&dev->dev);
}

struct device *smc_helper_ib_device_parent(const struct ib_device *dev)
{
	return dev->dev.parent;
}

bool smc_helper_dev_is_pci(const struct device *dev)
{
	return dev_is_pci(dev);
}

struct pci_dev *smc_helper_to_pci_dev(struct device *dev)
{
	return to_pci_dev(dev);
}

const char *smc_helper_dev_name(const struct device *dev)
{
	return dev_name(dev);
}

void smc_helper_ib_event_handler_init(struct ib_event_handler *handler,
				      struct ib_device *dev,
				      void (*fn)(struct ib_event_handler *,
						 struct ib_event *))
{
	INIT_IB_EVENT_HANDLER(handler, dev, fn);
}

u64 smc_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr,
				 size_t size, enum dma_data_direction dir)
{
	return ib_dma_map_single(dev, cpu_addr, size, dir);
}

/* Leaves the memory as it is: other mappings of it may have brought newer bytes. */
void smc_helper_ib_dma_unmap_single_unsynced(struct ib_device *dev, u64 addr,
					     size_t size,
					     enum dma_data_direction dir)
{
	if (!ib_uses_virt_dma(dev))
		dma_unmap_single_attrs(dev->dma_device, addr, size, dir,
				       DMA_ATTR_SKIP_CPU_SYNC);
}

bool smc_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return !ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr);
}

size_t smc_helper_ib_dma_max_mapping_size(struct ib_device *dev)
{
	if (ib_uses_virt_dma(dev))
		return SIZE_MAX;
	return dma_max_mapping_size(dev->dma_device);
}

int smc_helper_ib_dma_mapping_error(struct ib_device *dev, u64 dma_addr)
{
	return ib_dma_mapping_error(dev, dma_addr);
}

void smc_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
					   size_t size,
					   enum dma_data_direction dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void smc_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr,
					      size_t size,
					      enum dma_data_direction dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

void smc_helper_ib_sg_set_dma(struct scatterlist *sgl, unsigned int index,
			      u64 addr, unsigned int len)
{
	sg_dma_address(&sgl[index]) = addr;
	sg_dma_len(&sgl[index]) = len;
}

/* A compound page, so that a reference to one of its pages keeps them all. */
unsigned long smc_helper_ib_block_alloc(unsigned int order)
{
	return __get_free_pages(GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY |
				__GFP_COMP | __GFP_ZERO | __GFP_NOMEMALLOC,
				order);
}

void *smc_helper_ib_block_valloc(size_t len)
{
	return __vmalloc(len, GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY | __GFP_ZERO);
}

/* In any context but interrupts: with softirqs disabled vfree() leaves it to a worker. */
void smc_helper_ib_block_vfree(void *addr)
{
	local_bh_disable();
	vfree(addr);
	local_bh_enable();
}

/* The page at an address of such a block, as the kernel maps all memory; NULL for high memory. */
void *smc_helper_ib_block_page(const void *addr)
{
	return page_address(vmalloc_to_page(addr));
}

/* Out of line from Rust: the memory is shared with the peer's device. */
void smc_helper_ib_block_copy(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}

void smc_helper_ib_block_zero(void *dst, size_t len)
{
	memset(dst, 0, len);
}

void smc_helper_ib_netdev_put(struct net_device *dev)
{
	dev_put(dev);
}

/* Runs destructors of verbs objects, each for itself; may be needed to free memory. */
struct workqueue_struct *smc_helper_ib_alloc_workqueue(void)
{
	return alloc_workqueue("smc_ib_reap", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
}
