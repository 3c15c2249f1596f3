// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that counts what a guest with one processor executes, without the guest noticing.
 *
 * Arguments: dir=DIRECTORY for the results, mark=ADDRESS in hex of a kernel function. Each time the guest calls
 * that function, the counts since the last call are written to DIRECTORY/counts.N, with N from 0: a line for each
 * block of code that ran, with its address, its instructions, how often it ran, and the address of its last
 * instruction. A block that was translated more than once has more than one line.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of qemu-plugin.h that is used: Debian does not package that header. */

#define EXPORT __attribute__((visibility("default")))
#define NO_REGISTERS 0

struct qemu_plugin_insn;
struct qemu_plugin_tb;

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*callback)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, void (*callback)(unsigned int cpu, void *data),
					  int flags, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t number);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

/* The version of the API; QEMU 7.2 has this one. */
EXPORT int qemu_plugin_version = 1;

/* Counts ----------------------------------------------------------------------------------- */

struct block {
	struct block *next;
	uint64_t address;
	uint64_t last;
	size_t instructions;
	uint64_t count;
};

/* All that were translated. They are not freed: the translated code refers to them. */
static struct block *blocks;

static const char *dir;
static uint64_t mark;
static unsigned int files;

static struct block *new_block(uint64_t address, uint64_t last, size_t instructions)
{
	struct block *block = calloc(1, sizeof(*block));

	if (!block)
		abort();
	block->address = address;
	block->last = last;
	block->instructions = instructions;
	block->next = blocks;
	blocks = block;
	return block;
}

/* Programs' addresses mean nothing without the program: their blocks of one length share an entry at address 0. */
static struct block *user_block(size_t instructions)
{
	static struct block *by_length[1024];

	if (instructions >= 1024)
		abort();
	if (!by_length[instructions])
		by_length[instructions] = new_block(0, 0, instructions);
	return by_length[instructions];
}

static void write_counts(FILE *file)
{
	for (struct block *block = blocks; block; block = block->next) {
		if (block->count)
			fprintf(file, "%" PRIx64 " %zu %" PRIu64 " %" PRIx64 "\n", block->address, block->instructions,
				block->count, block->last);
		block->count = 0;
	}
}

/* Callbacks -------------------------------------------------------------------------------- */

static void on_executed(unsigned int cpu, void *data)
{
	struct block *block = data;

	block->count++;
}

static void on_mark(unsigned int cpu, void *data)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/counts.%u", dir, files++);
	file = fopen(path, "w");
	if (!file) {
		perror(path);
		return;
	}
	write_counts(file);
	if (fclose(file))
		perror(path);
}

static void on_translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t instructions = qemu_plugin_tb_n_insns(tb);
	struct block *block;

	if (address >> 63) {
		const struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, instructions - 1);

		block = new_block(address, qemu_plugin_insn_vaddr(last), instructions);
	} else {
		block = user_block(instructions);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_executed, NO_REGISTERS, block);
	if (address == mark)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_mark, NO_REGISTERS, NULL);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "dir=", 4))
			dir = strdup(argv[i] + 4);
		else if (!strncmp(argv[i], "mark=", 5))
			mark = strtoull(argv[i] + 5, NULL, 16);
	}
	if (!dir || !mark) {
		fprintf(stderr, "counter: arguments: dir=DIRECTORY,mark=ADDRESS\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	return 0;
}
