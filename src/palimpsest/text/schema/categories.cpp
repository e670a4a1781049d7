#include "palimpsest/text/schema/categories.h"

#include <algorithm>
#include <array>
#include <utility>

namespace palimpsest::schema {
namespace {

// Unicode 14.0.0, from Python's unicodedata: runs of equal categories from U+0000 on. A character of kSymbols, then the
// run's length in base 26, a to z; without one, 1.
constexpr std::string_view kRuns =
    "ZbgWRdTRdNORSRMRcIkRcSdRcAbaNROULUBbaNSOSZbhWRTeVRUVEPS+VUVSKcUBRcUKEQKdRAxSAhBySBiABABABABABABABABABABABABABABA"
    "BABABABABABABABABABABABABABcABABABABABABABABcABABABABABABABABABABABABABABABABABABABABABABABAcBABABdAcBABAcBAdBcA"
    "eBAcBAdBdAcBAcBABABAcBABcABAcBAdBABAcBcEABdEeACBACBACBABABABABABABABABcABABABABABABABABABcACBABAdBABABABABABABAB"
    "ABABABABABABABABABABABABABABABABABABABABABABhAcBAcBcABAeBABABABABcrEBbbDsUeDmUoDfUhDUDUrFeiABABDUAB/cDBdRA/eUcAR"
    "Ad/A/AcBAr/AjBbjABcAdBdABABABABABABABABABABABABfABSABAcBcAbzBbwABABABABABABABABABABABABABABABABABVFfHcABABABABAB"
    "ABABABABABABABABABABABABABABABABABABABABABABAcBABABABABABABcABABABABABABABABABABABABABABABABABABABABABABABABABAB"
    "ABABABABABABABABABABABABABABABABABABABABABAB/Abm/cDRgBbpRM/cVcT/FbtMFRFcRFcRF/iEbb/eEeRc/l+gSdRcTRcVcFlR+RdEbgDE"
    "kFvIkReEcFEdvREFh+VFgDcFcVFeEcIkEdVcERo/+EFEbeFbb/cEdlFlE/oIkEbhFjDcVRdD/cFTcEwFeDFjDFdDFf/cRp/EzFd/cR/El/fEyUEg"
    "/+c/gFiEbpDFy+FbgGEccFGFEGdFiGeFGcEFhEkFcRcIkRDEpFGc/Ei/cEc/cEw/Eh/E/dEe/cFEGdFe/cGc/cGcFE/iG/eEc/EdFc/cIkEcTcKg"
    "VTERF/cFcG/Eg/eEc/cEw/Eh/Ec/Ec/Ec/cF/GdFc/eFc/cFd/dF/hEe/E/hIkFcEdFR/kFcG/Ej/Ed/Ew/Eh/Ec/Ef/cFEGdFf/FcG/GcF/cE/p"
    "EcFc/cIkRT/hEFg/FGc/Ei/cEc/cEw/Eh/Ec/Ef/cFEGFGFe/cGc/cGcF/hFcG/eEc/EdFc/cIkVEKg/kFE/Eg/dEd/Ee/dEc/E/Ec/dEc/dEd/d"
    "Em/eGcFGc/dGd/GdF/cE/gG/oIkKdVgTV/fFGdFEi/Ed/Ex/Eq/cFEFdGe/Fd/Fe/hFc/Ed/cE/cEcFc/cIk/hRKhVEFGcREi/Ed/Ex/Ek/Ef/cF"
    "EGFGf/FGc/GcFc/hGc/gEc/EcFc/cIk/Ec/nFcGcEj/Ed/EbpFcEGdFe/Gd/GdFEV/eEdGKhEdFc/cIkKjVEg/FGc/Es/dEy/Ej/E/cEh/dF/eGd"
    "Fd/F/Gi/gIk/cGcR/mEbwFEcFh/eTEgDFiRIkRc/blEc/E/Ef/Ey/E/EkFEcFjE/cEf/D/Fg/cIk/cEe/bgEVdRpVRVdFcVgIkKkVFVFVFNONOGc"
    "Ei/Ebk/eFoGFfRFcEfFl/Fbk/ViFVg/VcRfVeRc/blEbrGcFeGFgGFcGcFcEIkRgEgGcFcEeFdEGdEcGhEdFeEnFGcFcGgFEGIkGdFVcAbm/A/fA"
    "/cBbrRDBdEmr/Ee/cEh/E/Ee/cEbp/Ee/cEbh/Ee/cEh/E/Ee/cEp/Ecf/Ee/cEcp/cFdRjKu/dEqVk/gAdi/cBg/cMExwVRErWEbaNO/dEcxRdJ"
    "dEi/hEsFdG/jEtFcGRc/jEsFc/mEn/Ed/Fc/mEcaFcGFhGiFGcFlRdDRdTEF/cIk/gKk/gRgMReFd+FIk/gEbjDEcb/hEfFcEbiFE/fEcs/kEbf/"
    "FdGeFcGd/eGcFGgFd/eV/dRcIkEbe/cEf/lEbs/eEba/gIkK/dVbiExFcGcF/cRcEcbGFGFh/FGFGcFiGgFk/cFIk/gIk/gRhDRg/cFoHFq/bxFe"
    "GEbvFGFfGFGfFGcEi/dIkRhVkFjVjRc/FcGEbeGFeGcFcGFdEcIkEbsFGFcGdFGFdGc/iReEbkGiFiGcFc/dRfIk/dEdIkEbeDgRcBj/hAbr/cAd"
    "Ri/iFdRFnGFhEeFEgFEcGFcE/fBbsDclBnDBbiDblFcmABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB"
    "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABjABABABABABABABABABABABABABABA"
    "BABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABjAiBg/cAg/cBiAiBiAiBg/cAg/cBi/A/A/A/ABiAiBo"
    "/cBiCiBiCiBiCiBf/BcAeCUBUdBd/BcAeCUdBe/cBcAe/UdBiAfUd/cBd/BcAeCUc/Wl+fMgRcPQNPcQNPRiXY+fWRjPQReLcRdSNORlSRLRkW+f"
    "/+kKD/cKgSdNODKkSdNO/Dn/dTbh/pFnHeFHdFm/pVcAVeAVcBAdBcAdBVAVcSAfVgAVAVAVAeVBAeBEeBVcBcAcSfABeVSVcBVKqJbjABJeKVc/"
    "eSfVfScVeSVcSVcSVhSVbfScVcSVSVbfSkiViNONOVuScVhNOVddSVbeSzVboSgVcr/zVl/vKciVdaKwVhbSVjSVccSiVehSVjoNONONONONONON"
    "OKbeVbsSfNOSbfNONONONONOSqVjwSfbNONONONONONONONONONONOSclNONOSbgNOSjyVbwSvVcSgVbn/cVbg/VebAbwBbwABAdBcABABABAeBA"
    "BcABgDcAdBABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABcVgA"
    "BABFdAB/fReKRcBbm/B/fB/cEce/hDR/oFEx/jEh/Eh/Eh/Eh/Eh/Eh/Eh/Eh/FbgRcPQPQRdPQRPQRjMRcMRPQRcPQNONONONORfDRkMcReMRNR"
    "nVcRdNONONONOM/biVba/Vdl/mVig/baVm/eWRdVDEJNONONONONOVcNONONONOMNOcVJjFeGcMDfVcJdDERVc/Edi/cFcUcDcEMEdmRDdE/fEbr"
    "/Edq/VcKeVkEbgVbk/mEqVbf/KkVbeKiVKpVbgKkVbnKpVmiEjtoVcmEbfcfDEbrz/dVcd/jEboDgRcEkiDRdEqIkEc/uABABABABABABABABABA"
    "BABABABABABABABABABABABABABEFHdRFkRDABABABABABABABABABABABABABABDcFcEcsJkFcRg/iUxDjUcABABABABABABABdABABABABABAB"
    "ABABABABABABABABABABABABABABABABABABABABABABABABABDBiABABAcBABABABABDUcABABEABABdABABABABABABABABABABAfBAfBABABA"
    "BABABABABAeBAB/fAB/B/BABAB/yDdABEDcBEhFEdFEeFExGcFcGVeF/dKgVcTV/gEcaRe/iGcEbyGqFc/iRcIk/gFsEgRdEREcFIkEbcFiRcExF"
    "lGc/lREbd/dFdGEbvFGcFeGcFcGdRn/DIk/eRcEfFDEjIkEf/EbpFgGcFcGcFc/jEdFEiFG/cIk/cReEqDEgVdEGFGEbyFEFdEcFcEfFcEFE/yEc"
    "DRcElGFcGcRcEDcGF/kEg/cEg/cEg/jEh/Eh/BbrUDeBjDUc/eBdcEbjGcFGcFGcRGF/cIk/gEqns/mEx/eEbx/e-dau*jmeEoc/cEec/bmBh/mB"
    "f/fEFEkSEn/Ef/E/Ec/Ec/EeeUr/qEnzONVqEcm/cEcc/hV/bgEmTVdFqRhNOR/gFqRMcLcNONONONONONONONORcNOReLdRd/ReMNONONORdSMS"
    "d/RTRc/eEf/Eff/c+/RdTRdNORSRMRcIkRcSdRcAbaNROULUBbaNSOSNORNORcEkDEbtDcEbf/dEg/cEg/cEg/cEd/dTcSUVTc/VSeVc/k+dVc/c"
    "Em/Eba/Et/Ec/Ep/cEo/biEet/fRd/eKbt/dVjJcbKeVrKcVd/Vn/dV/bvVbtF/faEbd/dEbx/pFKbb/eEbgKe/jEuJEiJ/fEbmFf/fEbe/REbk/"
    "eEiRJf/bqAboBboEda/cIk/gAbk/eBbk/eEbo/iEca/lRAl/Ap/Ah/Ac/Bl/Bp/Bh/Bc/cpElz/jEw/kEi/yDg/Dbq/Dj/crEg/cE/Ebs/Ec/dE/"
    "cEx/RKiExVcKhEbf/iKj/bwEt/Ec/fKfEwKg/dREba/fR/cmEce/eKcEcKq/cKbuEFd/Fc/fFeEe/Ed/Ebd/cFd/eFKj/hRj/hEbdKcREbdKd/bg"
    "EiVEbcFc/eKfRh/jEcc/dRhEw/cKiEt/fKiEs/hRe/mKh/dcEcv/cdAbz/nBbz/hKgEbkFe/iIk/liKbf/Ebq/FcM/cEc/daEbdKkE/iEwFlKeRf"
    "/wEsFeRe/bmEvKh/uEx/jGFGEcbFpRh/eKuIkFEcFcE/jFdGEbtGdFeGcFcRc+ReF/k+/cEz/hIk/gFdEbkFfGFi/IkReEGcE/iEbjFRcE/jFcGE"
    "bwGdFjGcEeReFeRGFIkERERd/Ku/lEs/EzGdFdGcFGFcRgF/cnEh/E/Ee/Ep/EkR/gEbvFGdFi/fIk/gFcGc/Ei/cEc/cEw/Eh/Ec/Ef/FcEGcFG"
    "e/cGc/cGd/cE/gG/fEfGc/cFh/dFf/fjEcbGdFiGcFdGFEeRfIkRc/RFEd/beEbwGdFgGFGeFcGFcEcRE/iIk/gkEbvGdFe/cGeFcGFcRxEeFc/b"
    "iEbwGdFiGcFGFcRdE/lIk/gRn/tEbrFGFGcFgGFER/gIk/ccEbb/cFdGcFeGFf/eIkKcRdVEh/hdEbsGdFjGFcR/dwAbgBbgIkKj/mEi/cE/cEi/"
    "Ec/EyGg/Gc/cFcGFEGEGFRd/jIk/csEi/cEbnGdFe/cFcGeFEREG/bbEFkEboFgGEFeRiF/iEFgGcFdEbuFnGFcRdERf/nEcv/kdEj/EblGFh/Fg"
    "GFERf/kIkKt/dRcEbe/cFw/GFhGFcGFc/cvEh/Ec/EbmFg/dF/Fc/FhEF/iIk/gEg/Ec/EbgGf/Fc/GcFGFE/hIk/lyEtFcGcRc/hbE/pKvViTeV"
    "r/nREbjm/dyJeh/Rf/lEho/dxkEdtRc/nEbpf/+j/fzjEwl/mubEvx/hEbf/Ik/eRcEdb/Ik/gEbe/cFfR/kEbwFhRfVeDeRV/kIk/Kh/Ev/fEt/"
    "bamAbgBbgKxRe/dxEcx/eFEGcd/hFeDn/cmDcRDF/lGc/oEjca/iEbvq/bqEj/nfrDe/Dh/Dc/Elf/btEd/rEe/iEpg/dkuEed/fEn/dEj/hEk/c"
    "VFcR+e/gyuFbu/cFx/jVem/ciVjm/kVbn/cVciGcFdVdGg+iFiVcFhVbeFeVcj/vVcoFdV/fyKu/mVdj/jKz/ffAbaBbaAbaBh/BsAbaBbaA/Ac/"
    "cA/cAc/cAe/AiBe/B/Bh/BlAbaBbaAc/Ae/cAi/Ah/BbaAc/Ae/Af/A/dAh/BbaAbaBbaAbaBbaAbaBbaAbaBbaAbaBbaAbaBbc/cAzSBzSBgAzS"
    "BzSBgAzSBzSBgAzSBzSBgAzSBzSBgAB/cIbyVtsFcdVeFbyViFVoFVcRf/pFf/Fp/bqmBkEBu/irFh/Fr/cFh/Fc/Ff/ifEbt/dFhDh/cIk/eEV/"
    "miEbeF/rEbsFeIk/fT/bwaEh/Ee/Ec/Ep/Ehp/cKjFh/bpAbiBbiFhD/eIk/eRc/befKchVKdTKe/cyKbtVKp/hmEe/Ebb/Ec/E/cE/Ek/Ee/E/E"
    "/gE/eE/E/E/Ed/Ec/E/cE/E/E/E/E/Ec/E/cEe/Eh/Ee/Ee/E/Ek/Er/fEd/Ef/Er/caSc/kkVbs/eVdw/mVp/cVp/Vp/Vbl/kKnVgf/ceVbd/nV"
    "bs/eVj/hVc/oVg/fyVjrUfVbca/fVq/dVn/dVem/mVdl/hVm/eV/pVm/eVce/iVk/gVbo/iVbe/cVc/daVnc/mVo/cVf/dVf/dVh/jVbd/dVl/fV"
    "g/kVk/gVi/iVh/jVfr/Vcd/blIk/bnqEclfc/bgEgdt/hEio/cEinq/oElbl/epjEuw/cfyEhhz/botcw+/be+ds/eyFjg/dsfo*dsyo/c*dsyo/"
    "c";

constexpr std::string_view kSymbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZ+-*/";
constexpr std::array<std::string_view, 30> kNames = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {{"Letter", "L"},
                                                                        {"Cased_Letter", "LC"},
                                                                        {"Uppercase_Letter", "Lu"},
                                                                        {"Lowercase_Letter", "Ll"},
                                                                        {"Titlecase_Letter", "Lt"},
                                                                        {"Modifier_Letter", "Lm"},
                                                                        {"Other_Letter", "Lo"},
                                                                        {"Mark", "M"},
                                                                        {"Combining_Mark", "M"},
                                                                        {"Nonspacing_Mark", "Mn"},
                                                                        {"Spacing_Mark", "Mc"},
                                                                        {"Enclosing_Mark", "Me"},
                                                                        {"Number", "N"},
                                                                        {"Decimal_Number", "Nd"},
                                                                        {"digit", "Nd"},
                                                                        {"Letter_Number", "Nl"},
                                                                        {"Other_Number", "No"},
                                                                        {"Punctuation", "P"},
                                                                        {"punct", "P"},
                                                                        {"Connector_Punctuation", "Pc"},
                                                                        {"Dash_Punctuation", "Pd"},
                                                                        {"Open_Punctuation", "Ps"},
                                                                        {"Close_Punctuation", "Pe"},
                                                                        {"Initial_Punctuation", "Pi"},
                                                                        {"Final_Punctuation", "Pf"},
                                                                        {"Other_Punctuation", "Po"},
                                                                        {"Symbol", "S"},
                                                                        {"Math_Symbol", "Sm"},
                                                                        {"Currency_Symbol", "Sc"},
                                                                        {"Modifier_Symbol", "Sk"},
                                                                        {"Other_Symbol", "So"},
                                                                        {"Separator", "Z"},
                                                                        {"Space_Separator", "Zs"},
                                                                        {"Line_Separator", "Zl"},
                                                                        {"Paragraph_Separator", "Zp"},
                                                                        {"Other", "C"},
                                                                        {"Control", "Cc"},
                                                                        {"cntrl", "Cc"},
                                                                        {"Format", "Cf"},
                                                                        {"Surrogate", "Cs"},
                                                                        {"Private_Use", "Co"},
                                                                        {"Unassigned", "Cn"}};

bool belongs(std::string_view category, std::string_view wanted) {
  if (wanted == "LC") return category == "Lu" || category == "Ll" || category == "Lt";
  return wanted.size() == 1 ? category[0] == wanted[0] : category == wanted;
}

}  // namespace

std::optional<CharSet> characters_with_property(std::string_view name) {
  for (const std::string_view prefix : {"General_Category=", "gc="})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (name == "Any") return all_characters();
  if (name == "ASCII") return char_set({{0, 127}});
  for (const auto& [full, brief] : kLongNames)
    if (name == full) name = brief;
  const bool known = std::ranges::any_of(kNames, [&](std::string_view each) { return belongs(each, name); });
  if (name.empty() || name.size() > 2 || !known) return std::nullopt;
  std::vector<Interval> out;
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < kRuns.size();) {
    const std::string_view category = kNames[kSymbols.find(kRuns[i++])];
    std::uint32_t length = 0;
    for (; i < kRuns.size() && kRuns[i] >= 'a' && kRuns[i] <= 'z'; ++i)
      length = length * 26 + static_cast<std::uint32_t>(kRuns[i] - 'a');
    length = std::max(length, 1U);
    if (belongs(category, name)) out.push_back({at, at + length - 1});
    at += length;
  }
  return char_set(std::move(out));
}

}  // namespace palimpsest::schema
