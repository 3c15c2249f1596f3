/* SPDX-License-Identifier: GPL-2.0 */
int smc_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr);
int smc_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr);
const char *smc_helper_ib_device_name(struct ib_device *dev);
struct device *smc_helper_ib_device_parent(const struct ib_device *dev);
bool smc_helper_dev_is_pci(const struct device *dev);
struct pci_dev *smc_helper_to_pci_dev(struct device *dev);
const char *smc_helper_dev_name(const struct device *dev);
void smc_helper_ib_event_handler_init(struct ib_event_handler *handler,
				      struct ib_device *dev,
				      void (*fn)(struct ib_event_handler *,
						 struct ib_event *));
u64 smc_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr,
				 size_t size, enum dma_data_direction dir);
void smc_helper_ib_dma_unmap_single_unsynced(struct ib_device *dev, u64 addr,
					     size_t size,
					     enum dma_data_direction dir);
bool smc_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr);
size_t smc_helper_ib_dma_max_mapping_size(struct ib_device *dev);
int smc_helper_ib_dma_mapping_error(struct ib_device *dev, u64 dma_addr);
void smc_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
					   size_t size,
					   enum dma_data_direction dir);
void smc_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr,
					      size_t size,
					      enum dma_data_direction dir);
void smc_helper_ib_sg_set_dma(struct scatterlist *sgl, unsigned int index,
			      u64 addr, unsigned int len);
unsigned long smc_helper_ib_block_alloc(unsigned int order);
void smc_helper_ib_block_copy(void *dst, const void *src, size_t len);
void smc_helper_ib_block_zero(void *dst, size_t len);
void smc_helper_ib_netdev_put(struct net_device *dev);
struct workqueue_struct *smc_helper_ib_alloc_workqueue(void);
void smc_helper_ib_dev_put(struct net_device *dev);
