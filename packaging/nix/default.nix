# SPDX-License-Identifier: GPL-2.0
# The tools, and the module for a kernel with CONFIG_RUST=y:
#   nix-build packaging/nix -A tools
#   boot.extraModulePackages =
#     [ ((import ./packaging/nix { inherit pkgs; }).module config.boot.kernelPackages.kernel) ];
{ pkgs ? import <nixpkgs> { } }:

let
  inherit (pkgs) lib;
  tree = lib.cleanSource ../..;
  version = lib.head (builtins.match ".*\nPACKAGE_VERSION=\"([^\"]*)\".*" (builtins.readFile ../../dkms.conf));
  meta = {
    description = "Stream sockets over RDMA (SMC-R), in Rust";
    license = lib.licenses.gpl2Only;
    platforms = lib.platforms.linux;
  };
in
{
  tools = pkgs.rustPlatform.buildRustPackage {
    pname = "smc-rs-tools";
    inherit version meta;
    src = tree;
    cargoLock.lockFile = ../../Cargo.lock;
    nativeBuildInputs = [ pkgs.llvmPackages.clang-unwrapped pkgs.pkg-config ];
    buildInputs = [ pkgs.elfutils pkgs.zlib ];
    buildPhase = "make tools";
    doCheck = false;
    # For services.udev.packages, too: its rule names a program of systemd.
    installPhase = ''
      make install-tools PREFIX=$out SYSCONFDIR=$out/etc
      sed -i 's|/usr/lib/systemd/|${pkgs.systemd}/lib/systemd/|' $out/lib/udev/rules.d/60-smc.rules
    '';
  };

  # The kernel has the metadata of its Rust crates beside its headers.
  module = kernel: pkgs.stdenv.mkDerivation rec {
    pname = "smc-rs";
    inherit version meta;
    src = tree;
    nativeBuildInputs = kernel.moduleBuildDependencies;
    hardeningDisable = [ "pic" "format" ];
    kdir = "${kernel.dev}/lib/modules/${kernel.modDirVersion}/build";
    buildPhase = "make module KDIR=${kdir}";
    installPhase = "make install KDIR=${kdir} INSTALL_MOD_PATH=$out DEPMOD=true";
  };
}
