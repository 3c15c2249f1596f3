// SPDX-License-Identifier: GPL-2.0
//! The timer of delayed work would find a destroyed workqueue, so an owned queue takes no delayed work.

use kernel::{
    impl_has_delayed_work,
    new_delayed_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};
use kernel_ext::workqueue::OwnedWorkqueue;

#[pin_data]
struct Item {
    #[pin]
    work: DelayedWork<Item>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Item { self.work }
}

impl WorkItem for Item {
    type Pointer = Arc<Item>;

    fn run(_this: Arc<Item>) {}
}

pub fn destroy_before_timer() -> Result {
    let queue = OwnedWorkqueue::unbound(c"test", 0)?;
    let item = Arc::pin_init(
        pin_init!(Item {
            work <- new_delayed_work!("Item::work"),
        }),
        GFP_KERNEL,
    )?;
    let _ = queue.enqueue_delayed(item, 100); //~ E0599
    Ok(())
}
